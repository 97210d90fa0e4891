"""Draws of a run found in their tasks' data, and their tokens: what rows are planned from, and what fills them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spanloom.pipeline.examples import Examples
from spanloom.pipeline.positions import Sizes
from spanloom.pipeline.shards import Ragged, ragged

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Drawn:
    """N draws."""

    tasks: Int64Array
    """(N,) numbers of the tasks."""
    examples: Int64Array
    """(N,) numbers of the examples in their task."""
    keys: npt.NDArray[np.uint64]
    """(N,) keys of their noise."""
    lengths: Int64Array
    """(N, 2) tokens of inputs and targets, at most: what room they need in a row."""
    starts: Int64Array
    """(N, 2) where their tokens begin in the columns of the task's store; of no meaning where examples are made."""

    def __len__(self) -> int:
        return len(self.tasks)

    def chosen(self, which_M: npt.NDArray[np.integer]) -> "Drawn":
        """Some of them."""
        return Drawn(
            self.tasks[which_M],
            self.examples[which_M],
            self.keys[which_M],
            self.lengths[which_M],
            self.starts[which_M],
        )


def empty_drawn(count: int) -> Drawn:
    """So many draws, to be filled by `put`."""
    return Drawn(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.uint64),
        np.empty((count, 2), np.int64),
        np.empty((count, 2), np.int64),
    )


def put(drawn: Drawn, rows_M: npt.NDArray[np.integer], part: Drawn) -> None:
    """Makes M of the draws others."""
    drawn.tasks[rows_M] = part.tasks
    drawn.examples[rows_M] = part.examples
    drawn.keys[rows_M] = part.keys
    drawn.lengths[rows_M] = part.lengths
    drawn.starts[rows_M] = part.starts


class Draws(Sizes, Protocol):
    """An endless order of examples, or one that ends."""

    @property
    def num_draws(self) -> int | None:
        """Draws that there are; None: endless."""

    def find(self, first: int, count: int) -> Drawn:
        """Draws first..first + count - 1."""

    def tokens(self, drawn: Drawn) -> tuple[Ragged, Ragged]:
        """Inputs and targets of these draws, ended as their task has it; values int32."""


class DrawBlocks:
    """Draws by number, found some thousand at a time: few calls for many tasks. What is kept is for speed alone."""

    def __init__(self, draws: Draws, size: int):
        self._draws = draws
        self._size = size
        self._kept: dict[int, Drawn] = {}

    def block(self, number: int) -> Drawn:
        """Draws number * size to (number + 1) * size - 1, as far as there are."""
        found = self._kept.get(number)
        if found is None:
            found = self._kept[number] = self._draws.find(number * self._size, self._size)
            for old in list(self._kept)[:-2]:  # a batch has draws of two blocks at most, if it is no larger than one
                self._kept.pop(old, None)  # several threads may ask at once
        return found

    def find(self, draws_N: npt.NDArray[np.integer]) -> Drawn:
        """These draws."""
        blocks_N = draws_N // self._size
        numbers = np.unique(blocks_N).tolist()
        if len(numbers) == 1:
            return self.block(numbers[0]).chosen(draws_N - numbers[0] * self._size)
        found = empty_drawn(len(draws_N))
        for number in numbers:
            own_M = np.flatnonzero(blocks_N == number)
            put(found, own_M, self.block(number).chosen(draws_N[own_M] - number * self._size))
        return found


def tokens_of(tasks: Sequence[Examples], drawn: Drawn, eos_id: int) -> tuple[Ragged, Ragged]:
    """Inputs and targets of draws, (tokens,) int32 each with N rows; no longer than `drawn.lengths`."""
    rows: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    lengths_Nx2 = drawn.lengths.copy()
    made: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for task in np.unique(drawn.tasks).tolist():
        if tasks[task].columns is None:
            own_M = np.flatnonzero(drawn.tasks == task)
            block = tasks[task].make(drawn.examples[own_M], drawn.keys[own_M])
            lengths_Nx2[own_M] = np.stack([block.input_lengths, block.target_lengths], axis=1)
            made |= dict(zip(own_M.tolist(), zip(block.inputs, block.targets, strict=True), strict=True))
    numbers = zip(drawn.tasks.tolist(), drawn.starts.tolist(), lengths_Nx2.tolist(), strict=True)
    for number, (task, starts, lengths) in enumerate(numbers):
        columns = tasks[task].columns
        for side in (0, 1):
            if columns is None:
                rows[side].append(made[number][side][: lengths[side]])
            else:
                rows[side].append(columns[side].slice(starts[side], starts[side] + lengths[side] - 1))
    return _joined(rows[0], lengths_Nx2[:, 0], eos_id), _joined(rows[1], lengths_Nx2[:, 1], eos_id)


def _joined(rows: Sequence[np.ndarray], lengths_N: Int64Array, eos_id: int) -> Ragged:
    """The rows one after another; one that is shorter by a token than its length gets an end of sequence."""
    joined = ragged(np.full(int(lengths_N.sum()), eos_id, np.int32), lengths_N)
    for row, start in zip(rows, joined.offsets.tolist(), strict=False):
        joined.values[start : start + len(row)] = row
    return joined
