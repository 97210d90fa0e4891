"""How long inputs and targets are beside the rows that hold them, and how many are cut."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.pipeline.columns import Column
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.facts.token_columns import token_columns
from spanloom.pipeline.row_examples import RowExamples
from spanloom.settings.task import Task, features_of

_BARS = 32
_AT_ONCE = 128


@dataclass(frozen=True)
class Histogram:
    """Examples by length."""

    edges: tuple[float, ...]
    """Bar i holds lengths from edges[i] up to below edges[i + 1], the last one edges[i + 1], too."""
    counts: tuple[int, ...]
    """Examples in each bar."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of inputs or targets in tokens, marks and end of sequence included."""

    width: int
    """What the task's rows hold."""
    examples: int
    """Examples looked at."""
    is_sample: bool
    """Whether there are more."""
    mean: float
    """As the model gets them: what is cut is not counted."""
    longest: int
    """Of the longest, before it is cut."""
    truncated: int
    """Examples looked at that are cut."""
    histogram: Histogram
    """Before they are cut."""

    @property
    def share_truncated(self) -> float:
        """Share of the examples that are cut."""
        return self.truncated / max(self.examples, 1)

    def padding(self, width: int) -> float:
        """Share of rows of `width` tokens that is padding, where each example has one of its own."""
        return 1 - self.mean / width


def lengths_of(part: Dataset, task: Task, most: int) -> dict[str, Lengths]:
    """Of "inputs" and "targets": pairs from the store, all of them; else of the `most` examples drawn first."""
    widths = {"inputs": part.inputs_length, "targets": part.targets_length}
    columns = token_columns(part.store)
    if widths.keys() <= columns.keys():
        ends = ends_of(task)
        return {
            side: summary(list(_ended(columns[side], ends[side])), width, is_sample=part.is_stream)
            for side, width in widths.items()
        }
    count = min(most, part.num_examples)
    lengths_Nx2 = _made(part, count)
    is_sample = count < part.num_examples or part.is_stream or isinstance(part.examples, RowExamples)
    return {side: summary([lengths_Nx2[:, at]], widths[side], is_sample) for at, side in enumerate(widths)}


def ends_of(task: Task) -> dict[str, int]:
    """How many tokens are put after the inputs and the targets of a pair: an end of sequence, or nothing."""
    return {"inputs": 1, "targets": 1} | {feature.name: int(feature.add_eos) for feature in features_of(task)}


def summary(parts: Iterable[npt.NDArray[np.int64]], width: int, is_sample: bool) -> Lengths:
    """What there is to say of lengths that come in parts, in rows of `width`."""
    parts = list(parts)
    examples = sum(len(part) for part in parts)
    longest = max((int(part.max(initial=0)) for part in parts), default=0)
    edges = np.linspace(0, max(longest, 1), min(_BARS, max(longest, 1)) + 1)
    counts = sum((np.histogram(part, edges)[0] for part in parts), np.zeros(len(edges) - 1, np.int64))
    kept = sum(int(np.minimum(part, width).sum()) for part in parts)
    return Lengths(
        width=width,
        examples=examples,
        is_sample=is_sample,
        mean=kept / max(examples, 1),
        longest=longest,
        truncated=sum(int(np.count_nonzero(part > width)) for part in parts),
        histogram=Histogram(tuple(edges.tolist()), tuple(counts.tolist())),
    )


def _ended(column: Column, end: int) -> Iterator[npt.NDArray[np.int64]]:
    """Lengths of all rows with what is put after them, by shard."""
    for shard in column.shards:
        yield np.diff(shard.offsets) + end


def _made(part: Dataset, count: int) -> npt.NDArray[np.int64]:
    """Lengths of the inputs and targets drawn first, before they are cut: (N, 2)."""
    if isinstance(part.examples, RowExamples):
        found = part.find(0, count)
        return part.examples.whole_lengths(found.examples, found.keys)
    lengths: list[tuple[int, int]] = []
    for first in range(0, count, _AT_ONCE):
        drawn = part.drawn(first, min(_AT_ONCE, count - first))
        lengths += [(len(example.inputs), len(example.targets)) for example in drawn]
    return np.array(lengths, np.int64).reshape(-1, 2)
