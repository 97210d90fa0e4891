"""Rows of ids as batches of few shapes, so that few programs are compiled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather

from spanloom.model.placement import ANYWHERE, Placement
from spanloom.scale.mesh import Layout
from spanloom.vocabularies.vocabulary import Ids, Int32Array

BATCH = 32
"""Rows that are computed together, unless they are long."""
_MULTIPLE = 32  # widths above it are rounded up to this, or to an eighth of the next power of two
_TOGETHER = BATCH * 1024**2  # attention scores of a head: fewer rows than BATCH where they are longer than 1024


@dataclass(frozen=True)
class Devices:
    """Where batches go."""

    place: Placement = ANYWHERE
    """What the model is told of it."""

    @property
    def shards(self) -> int:
        """A batch has a multiple of so many rows."""
        return self.place.batch_shards

    def put(self, array: np.ndarray) -> jax.Array:
        """An array whose first axis is the batch's."""
        if isinstance(self.place, Layout):
            return self.place.put_batch({"x": array}, array.shape[0])["x"]
        return jax.device_put(array)

    def fetch(self, arrays: Any) -> Any:
        """A tree of arrays that were computed there, for numpy: whole, in every process that shares the devices."""
        if isinstance(self.place, Layout):
            return process_allgather(arrays, tiled=True)
        return jax.tree.map(np.asarray, arrays)


def width_for(length: int) -> int:
    """The width that a row of so many tokens is padded to: at most an eighth, or 31 tokens, more."""
    step = max(_MULTIPLE, (1 << max(length - 1, 1).bit_length()) // 8)
    return max(step, -(-length // step) * step)


def rows_for(width: int, most: int = BATCH) -> int:
    """How many rows of such a width are computed together: a power of two, up to `most`."""
    return 1 << (max(1, min(most, most * _TOGETHER // (BATCH * width**2))).bit_length() - 1)


def batches_by_length(lengths: Sequence[int], most: int = BATCH) -> Iterator[tuple[list[int], int, int]]:
    """Places of rows that go together, longest first; the width, and how many rows there are with those of padding."""
    by_length = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    first = 0
    while first < len(by_length):
        width = width_for(lengths[by_length[first]])
        places = by_length[first : first + rows_for(width, most)]
        first += len(places)
        yield places, width, 1 << (len(places) - 1).bit_length()


def padded(rows: Sequence[Ids], count: int, width: int) -> Int32Array:
    """Rows of ids with 0 after each, and rows of 0 after all, (count, width) int32."""
    array = np.zeros((count, width), np.int32)
    for place, row in zip(array, rows, strict=False):
        place[: len(row)] = row
    return array
