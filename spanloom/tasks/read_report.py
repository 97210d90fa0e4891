"""What happened while a source was read: counts for the user, and the error that bad input raises."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from spanloom.settings.row_sources import Errors
from spanloom.tasks.rows import ROW

_Texts = Mapping[str, Sequence[bytes]]
_NAMED = 5  # so many messages of a kind are kept; the rest are only counted


class BadInputError(ValueError):
    """Input that cannot be read as the settings say: where it is, what is wrong, and what to do about it."""

    def __init__(self, where: str, what: str, fix: str = "", *, reason: str = "") -> None:
        self.where = where
        self.what = what
        self.fix = fix
        self.reason = reason or what
        self.is_final = False
        """Set once the settings decided that it stops the reading."""
        super().__init__(" ".join(_ended(part) for part in (f"{where}: {what}", fix) if part))


@dataclass
class ReadReport:
    """Counts of one pass over one part (train or heldout) of a source. Nothing is dropped without a count here."""

    documents: int = 0
    """Documents, rows or pairs given out."""
    noun: str = "document"
    """What one of them is called: pairs have more than one text."""
    bytes: int = 0
    """Their text, in bytes of UTF-8."""
    files: int = 0
    """Files opened."""
    file_bytes: int = 0
    """Bytes read of them, as they lie on disk."""
    replaced: int = 0
    """Undecodable places that became U+FFFD (errors=replace)."""
    nul_characters: int = 0
    """NUL characters in the text given out; they are kept, being legal text."""
    retried: int = 0
    """Dropped connections to remote files after which reading went on."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason -> how many documents, rows or files were left out for it."""
    messages: list[str] = field(default_factory=list)
    """The first few skipped or mended places of each reason, by name."""
    notes: dict[str, str] = field(default_factory=dict)
    """What a user should know about how the files were taken: kind of note -> the first of it."""
    more_notes: dict[str, int] = field(default_factory=dict)
    """Kind of note -> how many came after the first."""

    def skip(self, reason: str, message: str = "", count: int = 1) -> None:
        """Count what is left out; the first few messages of a reason are kept."""
        before = self.skipped.get(reason, 0)
        self.skipped[reason] = before + count
        if message and before < _NAMED:
            self.messages.append(f"skipped ({reason}): {message}")

    def replace(self, message: str, count: int) -> None:
        """Count undecodable places that became U+FFFD; the first few messages are kept."""
        if self.replaced < _NAMED:
            self.messages.append(f"replaced: {message}")
        self.replaced += count

    def retry(self, message: str) -> None:
        """Count a dropped connection; the first few messages are kept."""
        if self.retried < _NAMED:
            self.messages.append(f"tried again: {message}")
        self.retried += 1

    def note(self, kind: str, message: str) -> None:
        """Keep something the user should know; further notes of the same kind are counted."""
        if self.notes.setdefault(kind, message) != message:
            self.more_notes[kind] = self.more_notes.get(kind, 0) + 1

    def give(self, columns: _Texts) -> None:
        """Count documents that are given out: their texts in UTF-8, of each field as many."""
        self.documents += len(next(iter(columns.values())))
        self.noun = "row" if ROW in columns else "document" if len(columns) == 1 else "pair"
        for name, texts in columns.items():
            self.bytes += sum(map(len, texts))
            if name != ROW:  # packed rows are no text
                self.nul_characters += sum([text.count(0) for text in texts if 0 in text])

    def describe(self) -> str:
        """A few plain lines: documents, bytes, files, then what was skipped, mended or noticed."""
        given = plural(self.documents, self.noun)
        of_text = "" if self.noun == "row" else " of text"
        lines = [f"{given}, {_size(self.bytes)}{of_text} from {plural(self.files, 'file')}"]
        if self.skipped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(self.skipped.items()))
            lines.append(f"skipped: {reasons}")
        if self.replaced:
            lines.append(f"replaced: {plural(self.replaced, 'undecodable place')} by U+FFFD")
        if self.retried:
            lines.append(f"tried again: {plural(self.retried, 'dropped connection')}")
        if self.nul_characters:
            lines.append(f"kept: {plural(self.nul_characters, 'NUL character')}")
        for kind, note in self.notes.items():
            more = self.more_notes.get(kind, 0)
            lines.append(f"note: {note}" + (f" (and {more:,} more like it)" if more else ""))
        return "\n".join(lines + [f"  {text}" for text in self.messages])

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ReadReport":
        """The report that `to_dict` gave. Raises TypeError for unknown fields."""
        return cls(**data)


@dataclass(frozen=True)
class Intake:
    """What every reader needs: how text is encoded, what happens to bad input, and where it is counted."""

    report: ReadReport
    errors: Errors = "strict"
    encoding: str = "utf-8"

    def refuse(
        self, error: BadInputError, *, mended_by: Literal["skip", "skip|replace"] = "skip", count: int = 1
    ) -> None:
        """Count `error` and go on where errors=skip; otherwise raise it with the setting that would go on.

        `replace` mends bytes, nothing else: a broken row or file stops the reading there as in strict mode.
        """
        if self.errors == "skip":
            self.report.skip(error.reason, f"{error.where}: {error.what}", count)
            return
        choice = "--errors skip leaves it out and counts it"
        if mended_by == "skip|replace":
            choice = "--errors replace puts U+FFFD there, --errors skip leaves it out; both count it"
        fix = "; or ".join(part.rstrip(".") for part in (error.fix, choice) if part)
        final = BadInputError(error.where, error.what, fix, reason=error.reason)
        final.is_final = True
        raise final from error.__cause__

    @contextmanager
    def file_errors(self) -> Iterator[None]:
        """Around the reading of one file: where errors=skip, what ends the file is counted and the next one follows."""
        try:
            yield
        except BadInputError as error:
            if error.is_final:
                raise
            self.refuse(error)


def _ended(sentence: str) -> str:
    """With a full stop, unless it ends already: in '...', a question mark or its own full stop."""
    return sentence if sentence.endswith((".", "?")) else sentence + "."


def empty_file(path: str) -> BadInputError:
    """The error for a file without a byte."""
    return BadInputError(path, "the file is empty", "Get it again, or leave it out", reason="empty file")


def plural(count: int, noun: str) -> str:
    """'1 file', '2 files'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"
