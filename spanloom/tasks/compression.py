"""Files as blocks of plain bytes: plain, gzip, zstd, bzip2 and xz, recognised by content, with damage said exactly.

All four formats may hold several members or frames one after another (`cat a.gz b.gz`, pigz, pzstd), which are read
through. Output is bounded per step, so that a small file of zeros does not fill the memory.
"""

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from spanloom.tasks.file_system import open_file
from spanloom.tasks.read_report import BadInputError, ReadReport

BLOCK = 1 << 20
"""Bytes in a block of a plain file."""

SUFFIXES = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bzip2", ".xz": "xz"}
"""File name endings of the compressions that are read."""

_MAGIC = {"gzip": (b"\x1f\x8b",), "zstd": (b"\x28\xb5\x2f\xfd",), "bzip2": (b"BZh",), "xz": (b"\xfd7zXZ\0",)}
_NOT_READ = {b"PK\x03\x04": "a zip archive", b"7z\xbc\xaf": "a 7z archive", b"\x04\x22\x4d\x18": "an lz4 file"}
_ZSTD_SKIPPABLE = tuple(bytes((0x50 + i, 0x2A, 0x4D, 0x18)) for i in range(16))
_STEP = 1 << 16  # bytes into and, at most, out of a decompressor at once; what stands before damage in one step is lost
_ZSTD_INPUT = 1 << 14  # zstd's output has no bound, so its input comes in smaller pieces
_PADDING = {"gzip": b"\0", "xz": b"\0", "bzip2": b"", "zstd": b""}

Feed = Callable[[Any, bytes], Iterator[bytes]]


def compression_of(path: str, report: ReadReport) -> str:
    """'gzip', 'zstd', 'bzip2', 'xz' or '' (plain), by the file's first bytes; a name that says otherwise is noted.

    Raises BadInputError for archives, and where the name promises a compression that the content does not have.
    """
    with open_file(path, report) as file:
        head = file.read(16)
    named = SUFFIXES.get(os.path.splitext(path)[1].lower(), "")
    found = _recognise(head)
    if archive := next((what for magic, what in _NOT_READ.items() if head.startswith(magic)), ""):
        raise BadInputError(path, f"this is {archive} by its first bytes", "Unpack it first", reason="archive")
    if named and not found and head:
        raise BadInputError(
            path,
            f"the name says {named}, but the content is not: it begins with {head[:8]!r}",
            "Get the file again, or rename it if it is plain text",
            reason="damaged compressed file",
        )
    if found != named and head:
        taken, name = found or "plain", named or "plain"
        report.note("name", f"{path}: read as {taken} as its content says, although its name says {name}")
    return found


def blocks(path: str, compression: str, block_size: int = BLOCK, report: ReadReport | None = None) -> Iterator[bytes]:
    """The file's plain bytes, decompressed, in blocks of any size but 0; `report` counts those read.

    Raises BadInputError with reason 'damaged compressed file' where compressed data ends early or does not check.
    """
    with open_file(path, report) as file:
        if not compression:
            yield from _read(path, file, block_size, report)
            return
        step = _ZSTD_INPUT if compression == "zstd" else _STEP
        yield from _decompressed(path, compression, _read(path, file, step, report))


def check_inner(path: str, kind: str, head: bytes) -> None:
    """Raises BadInputError where the first decompressed bytes are those of another compressed file or an archive."""
    inner = _recognise(head) or next((what for magic, what in _NOT_READ.items() if head.startswith(magic)), "")
    if inner:
        what = f"is compressed twice: {inner} inside of {kind}"
        raise BadInputError(path, what, "Unpack it once", reason="compressed twice")


def _recognise(head: bytes) -> str:
    """The compression that a file begins like, or ''."""
    if head.startswith(_ZSTD_SKIPPABLE):
        return "zstd"
    found = next((name for name, magics in _MAGIC.items() if head.startswith(magics)), "")
    # "BZh" could begin a text; a bzip2 block or its end mark must follow the digit
    if found == "bzip2" and head[4:10] not in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90") and len(head) >= 10:
        return ""
    return found


def _read(path: str, file: BinaryIO, size: int, report: ReadReport | None) -> Iterator[bytes]:
    try:
        while block := file.read(size):
            if report is not None:
                report.file_bytes += len(block)
            yield block
    except OSError as error:
        raise BadInputError(
            path, f"cannot be read: {error.strerror or error}", "Check the disk or the mount", reason="unreadable file"
        ) from error


def _decompressed(path: str, name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    decoder: Any = None
    members = taken = given = 0
    new, feed, failures = _codec(name)
    for piece in pieces:
        taken += len(piece)
        while piece:
            if decoder is None:
                piece = piece.lstrip(_PADDING[name]) if members and _PADDING[name] else piece
                if not piece:
                    break
                decoder = new()
            try:
                for block in feed(decoder, piece):
                    given += len(block)
                    if block:
                        yield block
            except failures as error:
                raise _damaged(path, name, f"is damaged ({error})", taken, given, members) from error
            piece = b""
            if decoder.eof:
                piece, decoder, members = decoder.unused_data, None, members + 1
    if decoder is not None:
        raise _damaged(path, name, "ends early: the file is cut off", taken, given, members)


def _damaged(path: str, name: str, what: str, taken: int, given: int, members: int) -> BadInputError:
    after = f" and {members} whole part{'s' if members > 1 else ''}" if members else ""
    return BadInputError(
        path,
        f"the {name} data {what}, within the first {taken:,} bytes, after {given:,} decompressed bytes{after}",
        "Get the file again",
        reason="damaged compressed file",
    )


def _codec(name: str) -> tuple[Callable[[], Any], Feed, tuple[type[Exception], ...]]:
    if name == "gzip":
        return lambda: zlib.decompressobj(wbits=31), _feed_zlib, (zlib.error,)
    if name == "bzip2":
        return bz2.BZ2Decompressor, _feed_lzma, (OSError, EOFError, ValueError)
    if name == "xz":
        return lzma.LZMADecompressor, _feed_lzma, (lzma.LZMAError, EOFError)
    import zstandard

    # --long=31 files (web dumps) ask for windows of 2 GiB; only such files take that memory
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    return decompressor.decompressobj, _feed_zstd, (zstandard.ZstdError,)


def _feed_zlib(decoder: Any, data: bytes) -> Iterator[bytes]:
    while True:
        out = decoder.decompress(data, _STEP)
        yield out
        data = decoder.unconsumed_tail
        if decoder.eof or (not data and len(out) < _STEP):
            return


def _feed_lzma(decoder: Any, data: bytes) -> Iterator[bytes]:
    yield decoder.decompress(data, _STEP)
    while not decoder.eof and not decoder.needs_input:
        yield decoder.decompress(b"", _STEP)


def _feed_zstd(decoder: Any, data: bytes) -> Iterator[bytes]:
    yield decoder.decompress(data)
