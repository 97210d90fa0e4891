"""Masked held-out sentences with what the model fills in, as plain text or in colour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from spanloom.model.decoding import greedy
from spanloom.pipeline.dataset import TextExample
from spanloom.settings.model import Model
from spanloom.vocabularies.vocabulary import Ids, Vocabulary

if TYPE_CHECKING:
    from rich.text import Text

LEGEND = "[right guess]  [wrong guess|what was there]"


@dataclass(frozen=True)
class Piece:
    """A stretch of an example: text that the model saw, or a gap."""

    text: str
    """The text; of a gap, what was there."""
    guess: str | None = None
    """What the model put into the gap; None if this is no gap."""
    known: bool = True
    """Whether the vocabulary can write the text; if not, no guess is right."""

    @property
    def right(self) -> bool:
        """Whether the guess is what was there."""
        return self.known and self.guess == self.text


def fill_examples(
    params: Any, model: Model, vocabulary: Vocabulary, examples: Sequence[TextExample], targets_length: int
) -> list[list[Piece]]:
    """The pieces of each of `examples` (as `Dataset.text_examples` gives them), with the model's greedy guesses.

    The model writes at most `targets_length` tokens for an example. One program: all are decoded as one batch.
    """
    if not examples:
        return []
    width = max(len(example.inputs) for example in examples)
    inputs_BxS = np.zeros((len(examples), width), np.int32)
    for row, example in zip(inputs_BxS, examples, strict=True):
        row[: len(example.inputs)] = example.inputs
    written_BxT = np.asarray(greedy(params, model, inputs_BxS, targets_length, eos_id=vocabulary.eos_id).tokens)
    return [
        pieces_of(example.inputs, example.targets, written, vocabulary)
        for example, written in zip(examples, written_BxT, strict=True)
    ]


def pieces_of(inputs: Ids, targets: Ids, written: Ids, vocabulary: Vocabulary) -> list[Piece]:
    """Lay inputs, targets and the model's tokens over each other, by sentinel.

    A gap that the model did not come to has an empty guess. Targets without sentinels, such as a prefix LM's, are one
    gap after all of the inputs.
    """
    wanted, guessed = spans_of(targets, vocabulary), spans_of(written, vocabulary)
    if not wanted:
        return _continuation(inputs, targets, written, vocabulary)
    pieces: list[Piece] = []
    before: list[int] = []
    for sentinel, ids in _runs(_without_last_eos(inputs, vocabulary), vocabulary):
        if sentinel in wanted:
            there, guess = (_continue(before, spans.get(sentinel, []), vocabulary) for spans in (wanted, guessed))
            pieces.append(Piece(there, guess, known=vocabulary.unk_id not in wanted[sentinel]))
            before = wanted[sentinel] or before
        if ids:
            pieces.append(Piece(_continue(before, ids, vocabulary)))
            before = ids
    return pieces


def _continuation(inputs: Ids, targets: Ids, written: Ids, vocabulary: Vocabulary) -> list[Piece]:
    read, there, guess = (_without_last_eos(ids, vocabulary) for ids in (inputs, targets, written))
    known = vocabulary.unk_id not in there
    gap = Piece(_continue(read, there, vocabulary), _continue(read, guess, vocabulary), known=known)
    return [Piece(show(read, vocabulary)), gap] if read else [gap]


def spans_of(ids: Ids, vocabulary: Vocabulary) -> dict[int, list[int]]:
    """The tokens after each sentinel, by sentinel, whatever their order; those before the first one are left out.

    What a model writes need not be a target: of a sentinel that comes twice only the first span counts, one that does
    not come is absent, one at the very end has an empty span. The end of sequence that closes the ids is no part of a
    span; inner ones are (they part documents).
    """
    spans: dict[int, list[int]] = {}
    for sentinel, span in _runs(_without_last_eos(ids, vocabulary), vocabulary):
        if sentinel is not None:
            spans.setdefault(sentinel, span)
    return spans


def show(ids: Ids, vocabulary: Vocabulary) -> str:
    """Ids as text for people: documents that meet inside are parted by a line break, bad bytes shown as U+FFFD."""
    documents: list[list[int]] = [[]]
    for token in (int(token) for token in ids):
        if token == vocabulary.eos_id:
            documents.append([])
        else:
            documents[-1].append(token)
    return "\n".join(vocabulary.decode_with_sentinels(document) for document in documents)


def _continue(before: list[int], ids: list[int], vocabulary: Vocabulary) -> str:
    """Ids as text that goes on from `before`: SentencePiece drops the space before the first piece that it decodes."""
    head = show(before[-1:], vocabulary)
    whole = show([*before[-1:], *ids], vocabulary)
    if not head.strip() or "\ufffd" in head or not whole.startswith(head):
        return show(ids, vocabulary)
    return whole[len(head) :]


def plain(pieces: Iterable[Piece], context: int = 60) -> str:
    """One line: see LEGEND. Text between gaps is cut in its middle to about `context` characters; 0: never."""
    parts = []
    for piece in pieces:
        if piece.guess is None:
            parts.append(_cut(piece.text, context))
        elif piece.right:
            parts.append(f"[{piece.guess}]")
        else:
            parts.append(f"[{piece.guess}|{piece.text}]")
    return "".join(parts).replace("\n", " / ")


def coloured(pieces: Iterable[Piece], context: int = 60) -> "Text":
    """The same for a terminal: right guesses in green, wrong ones in red before what was there."""
    from rich.text import Text

    line = Text()
    for piece in pieces:
        if piece.guess is None:
            line.append(_cut(piece.text, context).replace("\n", " / "))
            continue
        line.append("[", style="dim")
        line.append(piece.guess.replace("\n", " / "), style="bold green" if piece.right else "bold red")
        if not piece.right:
            line.append("|", style="dim")
            line.append(piece.text.replace("\n", " / "), style="cyan")
        line.append("]", style="dim")
    return line


def _runs(ids: Sequence[int], vocabulary: Vocabulary) -> list[tuple[int | None, list[int]]]:
    """Stretches of ids with the sentinel before each; the first has none."""
    sentinels = set(vocabulary.sentinels)
    runs: list[tuple[int | None, list[int]]] = [(None, [])]
    for token in ids:
        if token in sentinels:
            runs.append((token, []))
        else:
            runs[-1][1].append(token)
    return runs


def _without_last_eos(ids: Ids, vocabulary: Vocabulary) -> list[int]:
    """Ids as a list, without padding and the end of sequence that closes them; inner ones part documents."""
    kept: npt.NDArray[np.integer] = np.trim_zeros(np.asarray(ids), "b")
    tokens = [int(token) for token in kept]
    return tokens[:-1] if tokens and tokens[-1] == vocabulary.eos_id else tokens


def _cut(text: str, context: int) -> str:
    if not context or len(text) <= context:
        return text
    half = max((context - 5) // 2, 1)
    return f"{text[:half]} ... {text[-half:]}"
