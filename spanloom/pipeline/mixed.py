"""The examples of several tasks as one endless sequence, drawn at the rates of a mixture."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spanloom.pipeline.batches import Batch
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.drawn import DrawBlocks, Drawn, empty_drawn, put, tokens_of
from spanloom.pipeline.mixing_plan import MixingPlan
from spanloom.pipeline.packed_rows import encoder_decoder_rows
from spanloom.pipeline.positions import OneEach, Position
from spanloom.pipeline.shards import Ragged

_BLOCK = 4096  # draws found at a time: many for each of hundreds of tasks


class MixedDataset(OneEach):
    """Draws of a mixture as batches. It has no state: every answer follows from arguments."""

    def __init__(self, parts: Sequence[Dataset], plan: MixingPlan):
        self._parts = parts
        self.plan = plan
        """Which task each draw is from; tasks are numbered as `parts`."""
        self._found = DrawBlocks(self, _BLOCK)
        self.inputs_length = max(part.inputs_length for part in parts)
        self.targets_length = max(part.targets_length for part in parts)

    @property
    def is_stream(self) -> bool:
        """Whether the rows of a task are a stream, so that nobody knows how many examples there are."""
        return any(part.is_stream for part in self._parts)

    def first_draw(self, position: Position) -> int:
        """The first draw that whoever goes on from a position may look at."""
        return position["examples"] // _BLOCK * _BLOCK

    @property
    def num_draws(self) -> int | None:
        """Draws there are; None: endless."""
        return self.plan.end

    @property
    def num_examples(self) -> int:
        """Examples of all tasks, each once."""
        return sum(part.num_examples for part in self._parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return MixedDataset, (self._parts, self.plan)

    def find(self, first: int, count: int) -> Drawn:
        """Draws first..first + count - 1, each found in its task's own endless order; none made yet."""
        tasks_N, before_N = self.plan.draws(first, count)
        found = empty_drawn(len(tasks_N))
        order_N = np.argsort(tasks_N, kind="stable")
        for rows_M in np.split(order_N, np.flatnonzero(np.diff(tasks_N[order_N])) + 1) if len(tasks_N) else ():
            task = int(tasks_N[rows_M[0]])
            # Draws of one task that follow one another are numbered without a gap.
            part = self._parts[task].find(int(before_N[rows_M[0]]), len(rows_M))
            put(found, rows_M, replace(part, tasks=np.full(len(rows_M), task)))
        return found

    def tokens(self, drawn: Drawn) -> tuple[Ragged, Ragged]:
        """Inputs and targets of draws that `find` gave."""
        return tokens_of([part.examples for part in self._parts], drawn, self._parts[0].examples.eos_id)

    def batch(self, first_example: int, batch_size: int) -> Batch:
        """Draws first_example..first_example + batch_size - 1; fields as `Dataset.batch`, padded to the widest task's.

        The n-th draw of a task is the n-th of its own endless order, whatever else is mixed in. Raises ValueError
        where the data end before that.
        """
        if self.plan.end is not None and first_example + batch_size > self.plan.end:
            raise ValueError(
                f"the mixture ends after {self.plan.end} draws, and {first_example + batch_size} are asked"
            )
        drawn = self._found.find(first_example + np.arange(batch_size))
        return encoder_decoder_rows(*self.tokens(drawn), (self.inputs_length, self.targets_length))
