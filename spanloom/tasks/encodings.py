"""Text encodings of files: byte-order marks, encodings in which a newline is not one byte, and what bytes look like."""

import codecs
from collections.abc import Callable, Iterable, Iterator
from encodings.aliases import aliases
from itertools import chain

from spanloom.settings.nearest import nearest
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.shown import shown

HEAD = 4096
"""Bytes at the start of a file that are looked at; a constant, so that block sizes never change what is found."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before utf-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

_INCREMENTAL: dict[str, Callable[..., tuple[str, int]]] = {
    "utf-16-le": codecs.utf_16_le_decode,
    "utf-16-be": codecs.utf_16_be_decode,
    "utf-32-le": codecs.utf_32_le_decode,
    "utf-32-be": codecs.utf_32_be_decode,
}


_NOT_OF_FILES = {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"}
"""What Python counts among the text encodings, although no file is written so (names of hosts, string literals)."""


def codec_name(encoding: str) -> str:
    """Python's name of a text encoding. Raises BadInputError for what is none, with the nearest name."""
    name = _codec(encoding)
    if not name:
        names = sorted({name.replace("_", "-") for name in (*aliases, *aliases.values())})
        near = [near for near in nearest(encoding.lower(), names, count=9, likeness=0.5) if _codec(near)]
        hint = f"; did you mean {near[0]!r}?" if near else ""
        unknown = BadInputError("encoding", f"{shown(encoding)} is no text encoding of files that Python knows{hint}")
        unknown.is_final = True  # it is the setting that is wrong: no file is to be left out for it
        raise unknown
    return "utf-8" if name == "utf-8-sig" else name


def _codec(encoding: str) -> str:
    """Python's name of an encoding in which a text file may be, or ''."""
    try:
        name = codecs.lookup(encoding).name
        if name.replace("_", "-") in _NOT_OF_FILES:
            return ""
        "".encode(encoding)  # refuses codecs that are none of text, such as hex
    except (LookupError, ValueError):  # ValueError: a name with a NUL
        return ""
    return name


def resolve(path: str, head: bytes, name: str) -> tuple[str, int]:
    """The encoding of a file's text, byte order included, and the length of its byte-order mark.

    `head` is the first HEAD bytes. Raises BadInputError where they show another encoding than the one named.
    """
    mark, marked = next(((bom, found) for bom, found in _BOMS if head.startswith(bom)), (b"", ""))
    if marked == "utf-32-le" and name.startswith("utf-16"):
        mark, marked = codecs.BOM_UTF16_LE, "utf-16-le"
    if marked and not marked.startswith(name):
        family = marked.removesuffix("-le").removesuffix("-be")
        raise BadInputError(
            path,
            f"begins with a byte-order mark of {family}, but the encoding is set to {name}",
            f"Say --encoding {family}",
            reason="other encoding",
        )
    if head.startswith(b"PAR1"):
        raise BadInputError(
            path, "is a parquet file by its first bytes", "Say --format parquet", reason="other format"
        )  # fmt: skip
    if not marked and head:
        _check_width(path, head, name)
    return marked if name in ("utf-16", "utf-32") and marked else name, len(mark)


def _check_width(path: str, head: bytes, name: str) -> None:
    """Raises BadInputError where a file without a byte-order mark has characters of other than the named width."""
    wide = _looks_wide(head)
    is_wide = name.startswith(("utf-16", "utf-32"))
    if not is_wide and wide:
        what, fix = f"looks like {wide} without a byte-order mark: many bytes are NUL", f"--encoding {wide}"
    elif is_wide and head.isascii() and 0 not in head:
        what, fix = f"is no {name}: it begins in plain ASCII", "--encoding utf-8"
    elif name in ("utf-16", "utf-32"):
        what = f"has no byte-order mark, which {name} needs"
        fix = f"--encoding {wide}" if wide else f"--encoding {name}-le, or {name}-be"
    else:
        return
    raise BadInputError(path, what, f"Say {fix}", reason="other encoding")


def ends_lines_in_cr(head: bytes, name: str) -> bool:
    """Whether lines end in CR alone, by a file's first bytes: they hold no LF, and a CR that none can follow."""
    text = head.decode(name, "ignore")
    return (
        "\n" not in text
        and "\0" not in text
        and "\r" in (text[:-1] if len(head) >= HEAD - len(codecs.BOM_UTF32_LE) else text)
    )


def splits_at_newline_bytes(name: str) -> bool:
    """Whether a newline is the byte 10 and that byte is nothing else, so that lines can be split before decoding."""
    return "\n".encode(name) == b"\n"


def to_utf8(
    path: str,
    pieces: Iterable[bytes],
    name: str,
    errors: str,
    offset: int,
    report: ReadReport,
    skipped: dict[int, str],
) -> Iterator[bytes]:
    """Transcode an encoding whose lines cannot be split as bytes; `offset` is where the pieces begin in the file.

    Bad places become U+FFFD (errors=replace), the byte 255, which no UTF-8 has and the line's reader refuses
    (errors=skip; `skipped` is given the first bad place of each line, in words), or raise BadInputError (strict).
    """
    decode = _INCREMENTAL.get(name, lambda data, errors, _final: codecs.lookup(name).decode(data, errors))
    pending, line = b"", 1
    for piece in chain(pieces, (b"",)):
        data, final = pending + piece, not piece
        while True:
            try:
                text, used = decode(data, "strict", final)
            except UnicodeDecodeError as error:
                good = decode(data[: error.start], "strict", True)[0]
                line += good.count("\n")
                bad = f"invalid {name} at byte {offset + error.start}: {data[error.start : error.end].hex(' ')}"
                yield good.encode("utf-8")
                if errors == "strict":
                    raise BadInputError(f"{path}:{line}", f"{bad} ({error.reason})", reason="undecodable") from error
                if errors == "replace":
                    report.replace(f"{path}:{line}: {bad}", 1)
                else:
                    skipped.setdefault(line, f"{bad} ({error.reason})")
                yield "\ufffd".encode() if errors == "replace" else b"\xff"
                data, offset = data[error.end :], offset + error.end
                continue
            break
        pending, offset, line = data[used:], offset + used, line + text.count("\n")
        if text:
            yield text.encode("utf-8")


def guess(line: bytes, name: str, mixed: bool) -> str:
    """What an undecodable line may be, as advice; `mixed`: the file held valid text beyond ASCII before it."""
    if name != "utf-8":
        return "" if _is_utf8(line) is False else "This line is valid utf-8: --encoding utf-8"
    if sum(byte < 9 or 13 < byte < 32 for byte in line[:1000]) > 2:
        return "This does not look like text at all"
    for other in ("cp1252", "latin-1"):
        try:
            line.decode(other)
        except UnicodeDecodeError:
            continue
        if mixed:
            return f"Lines before it are valid utf-8, so the file mixes encodings (this line may be {other})"
        return f"This looks like {other}: --encoding {other}"
    return ""


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not line.isascii()


def _looks_wide(head: bytes) -> str:
    """The encoding of wide characters that a text without a mark seems to be in, or ''.

    In UTF-32 every character has two bytes of NUL. In UTF-16 Western text has one in nearly every other byte; alphabets
    up to U+2000 have a low number there, and NUL beside blanks. Hardly any NUL is among the bytes between.
    """
    fours, pairs = len(head) // 4, len(head) // 2
    if pairs < 4:
        return ""
    by_place = [head[place : 4 * fours : 4].count(0) for place in range(4)]
    if min(by_place[2:]) > 0.95 * fours and by_place[0] < 0.5 * fours:
        return "utf-32-le"
    if min(by_place[:2]) > 0.9 * fours and by_place[3] < 0.5 * fours:
        return "utf-32-be"
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        high, low = head[start : 2 * pairs : 2], head[1 - start : 2 * pairs : 2]
        nuls, of_alphabet = high.count(0), sum(byte < 32 for byte in high)
        if low.count(0) < 0.1 * pairs and (nuls > 0.6 * pairs or (nuls > 0.03 * pairs and of_alphabet > 0.8 * pairs)):
            return name
    return ""
