"""Packed rows of a run by position: planned window by window, made where a batch takes them."""

from typing import Any

import numpy as np

from spanloom.pipeline.batches import Batch
from spanloom.pipeline.drawn import DrawBlocks, Draws
from spanloom.pipeline.packed_order import START, PackedOrder, WindowRow
from spanloom.pipeline.packed_rows import encoder_decoder_rows
from spanloom.pipeline.packing import IntArray, Packs
from spanloom.pipeline.positions import WHOLE, Position, Share


class PackedRows:
    """Rows that examples share. Every answer follows from arguments; what is kept is a memory for speed alone."""

    def __init__(
        self,
        draws: Draws,
        slots: tuple[int, int],
        max_segments: int | None = None,
        earlier: tuple[tuple[int, tuple[int, int]], ...] = (),
        measured: int = 0,
    ):
        """`earlier`: windows before (the first of the pair) that have other slots, as `PackedOrder.earlier`.
        `measured`: the window that tells, with those beside it, how many examples share a row.
        """
        self.draws = draws
        """The examples that are packed, in their order."""
        self._order = PackedOrder(
            self._lengths, slots, max_segments, draws.num_draws, earlier=earlier, measured=measured
        )
        self._found = DrawBlocks(draws, self._order.group)
        every = (slots, *(others for _, others in earlier))
        self.inputs_length, self.targets_length = (max(lengths) for lengths in zip(*every, strict=True))
        self._made_from = draws, slots, max_segments, earlier, measured

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedRows, self._made_from  # what is kept for speed is nothing to send to other processes

    @property
    def num_examples(self) -> int:
        """Examples that there are, each counted once."""
        return self.draws.num_examples

    @property
    def is_stream(self) -> bool:
        """Whether there are more than `num_examples`, and nobody knows how many."""
        return self.draws.is_stream

    def first_draw(self, position: Position) -> int:
        """The first draw that whoever goes on from a position may look at."""
        return self._order.first_draw(WindowRow(**position))

    @property
    def start(self) -> Position:
        """Before the first row."""
        return START._asdict()

    @property
    def examples_per_row(self) -> float:
        """The mean over the windows that are planned first, or with the one that is `measured`."""
        return self._order.draws_per_row

    def take(self, position: Position, batch_size: int, share: Share = WHOLE) -> tuple[Batch, Position]:
        """See `spanloom.pipeline.positions.TrainingRows`; fields as `packed_rows.encoder_decoder_rows` gives them."""
        packs, after = self._rows_after(position, batch_size)
        own = packs.rows(*share.rows(batch_size))
        inputs, targets = self.draws.tokens(self._found.find(own.examples))
        slots = self.inputs_length, self.targets_length
        return encoder_decoder_rows(inputs, targets, slots, own.offsets), after

    def skip(self, position: Position, rows: int) -> Position:
        """The position so many rows later: planned, none made."""
        return self._rows_after(position, rows)[1]

    def tasks_of(self, position: Position, rows: int) -> list[list[int]]:
        """The numbers of the tasks that the segments of the rows after a position are of."""
        packs, _ = self._rows_after(position, rows)
        return [part.tolist() for part in np.split(self._found.find(packs.examples).tasks, packs.offsets[1:-1])]

    def _rows_after(self, position: Position, count: int) -> tuple[Packs, Position]:
        packs, after = self._order.take(WindowRow(**position), count)
        if len(packs) < count:
            raise ValueError(f"the data end {len(packs):,} rows after {position}, and {count:,} are asked for")
        return packs, after._asdict()

    def _lengths(self, first: int, count: int) -> IntArray:
        return self._found.block(first // self._order.group).lengths
