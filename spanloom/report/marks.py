"""Pieces of an example as words with marks, the same for a terminal, a pipe and a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from spanloom.pipeline.facts.pieces import Piece, Pieces
from spanloom.report.visible import visible

Role = Literal["text", "span", "sentinel", "begin", "end", "eos", "stray", "mode"]

LEGEND = (
    "A masked span has one number and one colour wherever it stands; <3> is its sentinel, <extra_id_3> (in text "
    "infilling the mask, which is <extra_id_0> for all). \u21b5 is a line break, </s> the end of a sequence, \\xNN a "
    "byte of a character that is cut there."
)


@dataclass(frozen=True)
class Word:
    """A stretch to be shown in one style."""

    role: Role
    """begin and end are the marks around a masked span that no sentinel stands before; colours may take their place."""
    text: str
    """Visible as it is."""
    span: int | None
    """Number of the span whose colour it has."""


def words(pieces: Pieces) -> Iterator[Word]:
    """The words of one side of an example, marks included."""
    open_span: int | None = None
    before: Piece | None = None
    for piece in pieces:
        goes_on = before is not None and before.span == piece.span
        if open_span is not None and not goes_on:
            yield Word("end", f"</{open_span}>", open_span)
            open_span = None
        if piece.span is not None and piece.kind != "sentinel" and not goes_on:
            open_span = piece.span
            yield Word("begin", f"<{open_span}>", open_span)
        yield _word(piece)
        before = piece
    if open_span is not None:
        yield Word("end", f"</{open_span}>", open_span)


def _word(piece: Piece) -> Word:
    match piece.kind:
        case "sentinel":
            return Word("sentinel", f"<{piece.span}>", piece.span)
        case "stray":
            return Word("stray", f"[!{visible(piece.text)}]", piece.span)
        case "mode":
            return Word("mode", f"[{visible(piece.text)}]", None)
        case "eos":
            return Word("eos", "</s>", piece.span)
    return Word("text" if piece.span is None else "span", visible(piece.text), piece.span)
