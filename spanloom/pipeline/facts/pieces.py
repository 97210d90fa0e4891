"""Examples cut into pieces for people: text that stays, masked spans and their sentinels, modes, ends of sequence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from spanloom.pipeline.dataset import DrawnExample
from spanloom.settings.objectives import (
    UL2,
    IidDenoising,
    Objective,
    SpanCorruption,
    Supervised,
    TextInfilling,
    TokenStream,
)
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.objectives.text_infilling import masked_spans
from spanloom.tasks.objectives.ul2 import modes_of
from spanloom.vocabularies.bytes import ByteVocabulary
from spanloom.vocabularies.vocabulary import Ids, Vocabulary

Kind = Literal["text", "sentinel", "stray", "mode", "eos"]
MODES = ("R", "S", "X")
_NEVER_TEXT = 11  # bytes that UTF-8 does not use


@dataclass(frozen=True)
class Piece:
    """A stretch of ids."""

    kind: Kind
    """sentinel: one that the objective put there; stray: one that stands in the text itself."""
    ids: tuple[int, ...]
    """Its ids."""
    text: str
    """Its ids spelled out; nothing is lost, see `Vocabulary.spell`."""
    span: int | None = None
    """The masked span that it belongs to, counted from 0 in the example; None for what is not masked."""


Pieces = tuple[Piece, ...]


@dataclass(frozen=True)
class LaidOut:
    """An example as the model sees it."""

    number: int
    """Its number among the examples of the task."""
    inputs: Pieces
    """What the encoder reads."""
    targets: Pieces
    """What the decoder writes."""
    text: Pieces = ()
    """The text before it was masked; empty where inputs or targets are all of it."""
    mode: str = ""
    """UL2's denoiser: R, S or X."""
    cut: tuple[int, int] = (0, 0)
    """Tokens of inputs and targets that had no room."""

    @property
    def by_side(self) -> dict[str, Pieces]:
        """What is shown of it, by name, in order; empty where there is nothing to show."""
        return {"text": self.text, "inputs": self.inputs, "targets": self.targets}


def lay_out(
    example: DrawnExample, objective: Objective, vocabulary: Vocabulary, of_targets: Vocabulary | None = None
) -> LaidOut:
    """The pieces of one example of a task, numbered so that a span has one number in inputs, targets and text.

    `of_targets`: the vocabulary of the targets, where pairs have another one there.
    """
    if isinstance(objective, TextInfilling):
        return _infilled(example, objective, vocabulary)
    if isinstance(objective, Supervised) and _both_marked(example, vocabulary):
        inputs = marked_pieces(example.inputs, vocabulary, in_spans=False)
        return LaidOut(example.number, inputs, marked_pieces(example.targets, vocabulary, in_spans=True))
    first, mode = _mode_of(example.inputs, objective, vocabulary)
    rest = example.inputs[len(first) :]
    begin = (_piece("mode", first, vocabulary),) if first else ()
    if mode == "S" or not isinstance(objective, SpanCorruption | IidDenoising | UL2):
        targets = _plain(example.targets, objective, of_targets or vocabulary)
        return LaidOut(example.number, (*begin, *_plain(rest, objective, vocabulary)), targets, mode=mode)
    marks = reserved_sentinels(objective, vocabulary)
    shown = tuple(_masked(rest, marks, vocabulary, in_spans=False))
    targets = tuple(_masked(example.targets, marks, vocabulary, in_spans=True))
    text = _joined(shown, targets)
    if tuple(id_ for piece in text for id_ in piece.ids) != tuple(example.raw.tolist()):
        text = _plain(example.raw, objective, vocabulary)  # sentinels in the text itself may leave no way to tell
    return LaidOut(example.number, (*begin, *shown), targets, text, mode)


def reserved_sentinels(objective: Objective, vocabulary: Vocabulary) -> tuple[int, ...]:
    """The sentinels that no text of a task should hold, in order: all, but for Google's bytes, which serve as text
    beyond those that the objective uses, and beyond the 11 that no text can hold.
    """
    if not (isinstance(vocabulary, ByteVocabulary) and vocabulary.settings.sentinels == "google"):
        return vocabulary.sentinels
    own: tuple[int, ...] = ()
    if isinstance(objective, TokenStream):
        own = vocabulary.sentinels[: denoiser_of(objective, vocabulary).num_sentinels]
    if isinstance(objective, UL2):
        return (*own, *(id_ for mode in modes_of(objective, vocabulary) for id_ in mode if id_ in vocabulary.sentinels))
    return own or vocabulary.sentinels[:_NEVER_TEXT]


def plain_pieces(ids: Ids, vocabulary: Vocabulary, sentinels: Iterable[int] = ()) -> Pieces:
    """Text and ends of sequence, and of these sentinels those that stand in it, as strays."""
    marks = {vocabulary.eos_id: "eos", **dict.fromkeys(sentinels, "stray")}
    pieces = []
    for kind, group in groupby(map(int, ids), key=marks.get):
        tokens = tuple(group)
        if kind is None:
            pieces.append(_piece("text", tokens, vocabulary))
        else:
            pieces += [_piece("eos" if kind == "eos" else "stray", (token,), vocabulary) for token in tokens]
    return tuple(pieces)


def _both_marked(pair: DrawnExample, vocabulary: Vocabulary) -> bool:
    """Whether inputs and targets hold sentinels: pairs with masked spans, made so on purpose."""
    return all(np.isin(ids, vocabulary.sentinels).any() for ids in (pair.inputs, pair.targets))


def marked_pieces(ids: Ids, vocabulary: Vocabulary, *, in_spans: bool) -> Pieces:
    """Ids of an example whose objective is not known: a sentinel has its own number wherever it stands, and so has what
    follows it if these are spans.
    """
    numbers = {id_: number for number, id_ in enumerate(vocabulary.sentinels)}
    span: int | None = None
    found: list[Piece] = []
    for piece in plain_pieces(ids, vocabulary, vocabulary.sentinels):
        if piece.kind == "stray":
            span = numbers[piece.ids[0]]
            found.append(Piece("sentinel", piece.ids, piece.text, span))
        else:
            found.append(Piece(piece.kind, piece.ids, piece.text, span if in_spans else None))
    return tuple(found)


def _plain(ids: Ids, objective: Objective, vocabulary: Vocabulary) -> Pieces:
    return plain_pieces(ids, vocabulary, reserved_sentinels(objective, vocabulary))


def _piece(kind: Kind, ids: Iterable[int], vocabulary: Vocabulary, span: int | None = None) -> Piece:
    tokens = tuple(ids)
    text = vocabulary.spell(tokens)
    if kind in ("sentinel", "stray"):  # a byte that is a sentinel, too, is named as one
        text = f"<extra_id_{vocabulary.sentinels.index(tokens[0])}>"
    return Piece(kind, tokens, text, span)


def _mode_of(inputs: Ids, objective: Objective, vocabulary: Vocabulary) -> tuple[tuple[int, ...], str]:
    """The ids that tell the mode at the beginning of an example, and its name; none but for UL2."""
    if isinstance(objective, UL2):
        for name, ids in zip(MODES, modes_of(objective, vocabulary), strict=True):
            if tuple(inputs[: len(ids)]) == ids:
                return ids, name
    return (), ""


def _masked(ids: Ids, sentinels: tuple[int, ...], vocabulary: Vocabulary, *, in_spans: bool) -> Iterator[Piece]:
    """Sentinels come in order; any other one is a stray. `in_spans`: what follows a sentinel is its span."""
    spans = 0
    for piece in plain_pieces(ids, vocabulary, sentinels):
        if piece.kind == "stray" and sentinels[spans : spans + 1] == piece.ids:
            yield Piece("sentinel", piece.ids, piece.text, spans)
            spans += 1
        else:
            yield Piece(piece.kind, piece.ids, piece.text, spans - 1 if in_spans and spans else None)


def _joined(inputs: Pieces, targets: Pieces) -> Pieces:
    """Inputs with the spans of the targets in the place of their sentinels, without the ends of both."""
    spans: dict[int | None, list[Piece]] = {}
    for piece in targets[:-1]:
        if piece.kind != "sentinel":
            spans.setdefault(piece.span, []).append(piece)
    text: list[Piece] = []
    for piece in inputs[:-1]:
        text += spans.get(piece.span, []) if piece.kind == "sentinel" else [piece]
    return tuple(text)


def _infilled(example: DrawnExample, objective: TextInfilling, vocabulary: Vocabulary) -> LaidOut:
    """Masks are all alike, and the targets are the whole text: only the noise itself tells the spans."""
    sentinels = vocabulary.sentinels[:1]
    keys = np.array([example.key], np.uint64)
    starts, lengths = (array[0].tolist() for array in masked_spans(keys, len(example.raw), objective))
    inputs: list[Piece] = []
    text: list[Piece] = []
    at = 0
    for span, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        kept = plain_pieces(example.raw[at:start], vocabulary, sentinels)
        inputs += [*kept, _piece("sentinel", sentinels, vocabulary, span)]
        masked = plain_pieces(example.raw[start : start + length], vocabulary, sentinels)
        text += [*kept, *(Piece(piece.kind, piece.ids, piece.text, span) for piece in masked)]
        at = start + length
    end = _piece("eos", (vocabulary.eos_id,), vocabulary)
    rest = plain_pieces(example.raw[at:], vocabulary, sentinels)
    return LaidOut(example.number, (*inputs, *rest, end), (*text, *rest, end))
