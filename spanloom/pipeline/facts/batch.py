"""What one training batch is made of: rows, the segments packed into them, and the share that is padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.batches import Batch
from spanloom.pipeline.facts.pieces import Pieces, marked_pieces
from spanloom.vocabularies.vocabulary import Vocabulary

SIDES = {"encoder": "encoder_input_tokens", "decoder": "decoder_target_tokens"}
"""The two sides of a batch, and the field that holds the tokens of each; a decoder-only one has the second alone."""


@dataclass(frozen=True)
class Segment:
    """One example in a row: what stands on each side."""

    number: int
    """From 1, as in the batch."""
    task: str
    """The task that it is of; empty where nobody knows."""
    lengths: dict[str, int]
    """Tokens by side."""
    pieces: dict[str, Pieces]
    """Text by side; of segments that are not shown in full nothing."""


@dataclass(frozen=True)
class Row:
    """One row of the batch."""

    number: int
    """From 0."""
    segments: tuple[Segment, ...]
    """The examples in it, in order."""

    def used(self, side: str) -> int:
        """Tokens of one side."""
        return sum(segment.lengths[side] for segment in self.segments)


@dataclass(frozen=True)
class BatchFacts:
    """A batch."""

    widths: dict[str, int]
    """Tokens of a row by side."""
    tokens: dict[str, int]
    """Tokens of the batch that are no padding, by side."""
    is_packed: bool
    """Whether examples share rows."""
    num_segments: int
    """Examples in it."""
    rows: tuple[Row, ...]
    """All of them."""

    def padding(self, side: str) -> float:
        """Share of one side that is padding."""
        return 1 - self.tokens[side] / max(self.widths[side] * len(self.rows), 1)


def batch_facts(
    batch: Batch, vocabulary: Vocabulary, tasks: Sequence[Sequence[str]] = (), in_full: int = 0
) -> BatchFacts:
    """The facts of a batch, with the text of its first `in_full` rows.

    `tasks`: those of the segments of each row, where they are known.
    """
    sides = [side for side, field in SIDES.items() if field in batch]
    segments = {side: segments_of(batch, side) for side in sides}
    rows = []
    for number in range(len(batch[SIDES[sides[0]]])):
        known = tasks[number] if number < len(tasks) else ()
        rows.append(Row(number, tuple(_segments(batch, segments, number, known, vocabulary, shown=number < in_full))))
    return BatchFacts(
        widths={side: batch[SIDES[side]].shape[1] for side in sides},
        tokens={side: int(np.count_nonzero(segments[side])) for side in sides},
        is_packed=f"{sides[-1]}_segment_ids" in batch,
        num_segments=sum(len(row.segments) for row in rows),
        rows=tuple(rows),
    )


def segments_of(batch: Batch, side: str) -> np.ndarray:
    """The number of the segment that each token of a side belongs to, 0 for padding: (rows, length).

    Rows that are not packed end with their last id that is not 0, or the last target that has weight.
    """
    if f"{side}_segment_ids" in batch:
        return batch[f"{side}_segment_ids"]
    is_token_NxL = batch[SIDES[side]] != 0
    if side == "decoder":
        is_token_NxL = is_token_NxL | (batch["decoder_loss_weights"] != 0)
    ends_here_or_later = np.flip(np.logical_or.accumulate(np.flip(is_token_NxL, 1), axis=1), 1)
    return ends_here_or_later.astype(np.int32)


def _segments(
    batch: Batch,
    segments: dict[str, np.ndarray],
    row: int,
    tasks: Sequence[str],
    vocabulary: Vocabulary,
    *,
    shown: bool,
) -> Iterator[Segment]:
    last = max(int(numbers[row].max(initial=0)) for numbers in segments.values())
    for number in range(1, last + 1):
        ids = {side: batch[SIDES[side]][row][numbers[row] == number] for side, numbers in segments.items()}
        pieces = {
            side: marked_pieces(tokens, vocabulary, in_spans=side == "decoder") if shown else ()
            for side, tokens in ids.items()
        }
        lengths = {side: len(tokens) for side, tokens in ids.items()}
        yield Segment(number, tasks[number - 1] if number <= len(tasks) else "", lengths, pieces)
