"""Lines of a text file, split as bytes and decoded many at a time; one line at a time only where bytes are bad."""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from spanloom.tasks import compression, encodings
from spanloom.tasks.blank import is_blank, is_blank_utf8
from spanloom.tasks.read_report import BadInputError, Intake, empty_file

_LONG = 500  # bytes of a line


@dataclass(frozen=True)
class LineBlock:
    """Consecutive whole lines as they stand in the file, and where they stand."""

    raw: bytes
    first_line: int
    offset: int

    @property
    def count(self) -> int:
        """Lines in the block."""
        return self.raw.count(b"\n") + (not self.raw.endswith(b"\n"))

    def lines(self) -> list[bytes]:
        """The lines without their ends, LF or CR LF."""
        raw = self.raw.replace(b"\r\n", b"\n") if b"\r" in self.raw else self.raw
        lines = raw.split(b"\n")
        if not lines[-1]:
            lines.pop()
        return lines

    def places(self) -> Iterator[tuple[int, int]]:
        """(line number from 1, byte offset in the decompressed file) of each line."""
        lengths = (len(line) + 1 for line in self.raw.split(b"\n"))
        return enumerate(accumulate(lengths, initial=self.offset), self.first_line)


class TextFile:
    """One open text file: its blocks of lines, and how they are decoded."""

    def __init__(self, path: str, intake: Intake, block_size: int = compression.BLOCK) -> None:
        """Looks at the file's first bytes. Raises BadInputError where there are none, or they contradict the settings.

        (Under errors=skip an empty file is counted, and has no lines.)
        """
        self.path = path
        self._intake = intake
        self._mixed = False
        self._bad_places: dict[int, str] = {}
        kind = compression.compression_of(path, intake.report)
        self._pieces = compression.blocks(path, kind, block_size, intake.report)
        head, self._damage = self._first_bytes()
        if kind:
            compression.check_inner(path, kind, head)
        self.is_empty = not head and self._damage is None
        self._of_what = "decompressed text" if kind else "file"
        beginning = head[: encodings.HEAD]
        self.encoding, mark = encodings.resolve(path, beginning, encodings.codec_name(intake.encoding))
        self._head, self._offset = head[mark:], mark
        self._ends_in_cr = encodings.ends_lines_in_cr(beginning[mark:], self.encoding)
        if self._ends_in_cr:
            intake.report.note("line ends", f"{path}: lines end in CR alone, as on an old Mac; they are split there")
        intake.report.files += 1
        if self.is_empty:
            intake.refuse(empty_file(path))

    def line_blocks(self) -> Iterator[LineBlock]:
        """The file's lines, some at a time. An unfinished line before damage in a compressed file is left out."""
        pieces = self._plain_pieces()
        rest = bytearray()  # the beginning of an unfinished line, in one buffer that grows: it may be 200 MB long
        line, offset = 1, self._offset
        for piece in pieces:
            end = piece.rfind(b"\n") + 1
            if not end:
                rest += piece
                continue
            rest += piece[:end]
            raw = bytes(rest)
            rest = bytearray(piece[end:])
            del piece
            yield LineBlock(raw, line, offset)
            line, offset = line + raw.count(b"\n"), offset + len(raw)
        if rest:
            raw = bytes(rest)
            del rest
            yield LineBlock(raw, line, offset)

    def whole(self) -> str | None:
        """The whole file as one text, line ends made LF; None if it is refused."""
        pieces = self._plain_pieces()
        text = self.decode(b"".join(pieces), 1, self._offset)
        return text if text is None else text.replace("\r\n", "\n")

    def decode_block(self, block: LineBlock) -> Iterator[list[tuple[int, str]]]:
        """(line number, text) of the lines of a block; blank ones are counted as 'empty', bad ones refused."""
        texts = self._decode_many(block.lines())
        if texts is None:
            yield from ([(number, text)] for number, text in self._decode_slowly(block))
            return
        numbered = [(number, text) for number, text in enumerate(texts, block.first_line) if not is_blank(text)]
        self._count_empty(len(texts) - len(numbered))
        del texts  # which may be long, while the caller works on its copy
        yield numbered

    def utf8_texts(self, block: LineBlock) -> Iterator[list[bytes]]:
        """Like `decode_block`, the texts alone and in UTF-8: text that is so already is only checked."""
        if self.encoding == "utf-8" and _is_utf8(block.raw):
            self._mixed = self._mixed or not block.raw.isascii()
            lines = block.lines()
            some = [line for line in lines if not is_blank_utf8(line)]
            self._count_empty(len(lines) - len(some))
            yield some
        else:
            for batch in self.decode_block(block):
                yield [text.encode("utf-8") for _, text in batch]

    def lines_for_csv(self) -> Iterator[str]:
        """All lines with their ends, for a reader of rows that may span lines. Undecodable lines are mended or raise;
        with errors=skip their bad bytes become lone surrogates, so that the row that holds them can be left out.
        """
        for block in self.line_blocks():
            lines = block.lines()
            texts = self._decode_many(lines)
            if texts is not None:
                yield from (text + "\n" for text in texts)
            elif self._intake.errors == "skip":
                yield from (line.decode(self.encoding, "surrogateescape") + "\n" for line in lines)
            else:
                places = zip(lines, block.places(), strict=False)
                yield from (f"{self.decode(line, number, offset)}\n" for line, (number, offset) in places)

    def decode(self, raw: bytes, line: int, offset: int) -> str | None:
        """One text; where it is undecodable, what the settings say: raise, mend and count, or None and count."""
        try:
            return raw.decode(self.encoding)
        except UnicodeDecodeError as error:
            line += raw[: error.start].count(b"\n")
            where = f"{self.path}:{line}"
            bad = raw[error.start : error.end].hex(" ")
            what = f"invalid {self.encoding} at byte {offset + error.start} of the {self._of_what}: {bad}"
            if self._intake.errors == "replace":
                text = raw.decode(self.encoding, "replace")
                already = raw.count("\ufffd".encode(self.encoding)) if self.encoding == "utf-8" else 0
                self._intake.report.replace(f"{where}: {what}", text.count("\ufffd") - already)
                return text
            start = raw.rfind(b"\n", 0, error.start) + 1
            end = raw.find(b"\n", error.start)
            bad_line = raw[start : end if end >= 0 else len(raw)]
            mixed = self._mixed or not raw[: error.start].isascii()
            what = f"{what} ({error.reason}) after {bad_line[max(0, error.start - start - 20) : error.start - start]!r}"
            what = self._bad_places.pop(line, what)  # of the file as it stands, where this is a transcoded line
            advice = encodings.guess(bad_line, self.encoding, mixed)
            self._intake.refuse(BadInputError(where, what, advice, reason="undecodable"), mended_by="skip|replace")
            return None

    def _decode_many(self, lines: list[bytes]) -> list[str] | None:
        """The lines as texts, or None if one of them is undecodable."""
        try:
            texts = _decode_each(lines, self.encoding) if _are_long(lines) else _decode_joined(lines, self.encoding)
        except UnicodeDecodeError:
            return None
        self._mixed = self._mixed or not all(map(bytes.isascii, lines))
        return texts if len(texts) == len(lines) else _decode_each(lines, self.encoding)

    def _decode_slowly(self, block: LineBlock) -> Iterator[tuple[int, str]]:
        for line, (number, offset) in zip(block.lines(), block.places(), strict=False):
            text = self.decode(line, number, offset)
            if text is None:
                continue
            self._mixed = self._mixed or not line.isascii()
            if is_blank(text):
                self._count_empty(1)
            else:
                yield number, text

    def _count_empty(self, count: int) -> None:
        if count:
            self._intake.report.skip("empty", count=count)

    def _first_bytes(self) -> tuple[bytes, BadInputError | None]:
        """At least encodings.HEAD bytes if the file has so many; damage after them is kept for its turn."""
        head = b""
        try:
            while len(head) < encodings.HEAD and (piece := next(self._pieces, b"")):
                head += piece
        except BadInputError as error:
            return head, error
        return head, None

    def _plain_pieces(self) -> Iterator[bytes]:
        """The file in an encoding in which a newline is the byte 10, and ends every line but perhaps the last."""
        pieces = self._all_pieces()
        if not encodings.splits_at_newline_bytes(self.encoding):
            pieces = self._transcoded(pieces)
        return (piece.replace(b"\r", b"\n") for piece in pieces) if self._ends_in_cr else pieces

    def _all_pieces(self) -> Iterator[bytes]:
        if self._head:
            yield self._head
        self._head = b""
        if self._damage is not None:
            raise self._damage
        yield from self._pieces

    def _transcoded(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        name, self.encoding = self.encoding, "utf-8"
        intake = self._intake
        try:
            yield from encodings.to_utf8(
                self.path, pieces, name, intake.errors, self._offset, intake.report, self._bad_places
            )
        except BadInputError as error:
            if error.reason != "undecodable":
                raise
            intake.refuse(error, mended_by="skip|replace")


def _is_utf8(raw: bytes) -> bool:
    """Whether the bytes are UTF-8, looked at in pieces: a text of them all may take four times their memory."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    try:
        for start in range(0, len(raw), compression.BLOCK):
            decode(raw[start : start + compression.BLOCK], start + compression.BLOCK >= len(raw))
    except UnicodeDecodeError:
        return False
    return True


def _are_long(lines: list[bytes]) -> bool:
    """Whether joining the lines to decode them at once costs more than it saves."""
    return sum(map(len, lines)) > _LONG * len(lines)


def _decode_each(lines: list[bytes], encoding: str) -> list[str]:
    return [line.decode(encoding) for line in lines]


def _decode_joined(lines: list[bytes], encoding: str) -> list[str]:
    return b"\n".join(lines).decode(encoding).split("\n") if lines else []
