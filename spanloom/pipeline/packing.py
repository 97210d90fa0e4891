"""Which examples share a row: planned from stored lengths in windows, the same on every host.

A window of N examples that follow one another is packed on its own, so that the plan depends on its lengths alone. An
example takes room of one or more features (inputs and targets), each with a slot of its own: vector bin packing. The
examples are taken by falling size, the sum of their shares of the slots, and each goes to the row where it leaves the
least room, counted likewise (best-fit decreasing; Panigrahy et al. 2011, "Heuristics for vector bin packing"). No such
rule is never beaten, so first-fit and next-fit in the order of arrival are tried too, and the fewest rows win.

Many windows are planned in step: NumPy compares the n-th example of each with all rows of its window at once.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.tasks.randomness import hash64

WINDOW = 4096
"""Examples packed together: larger windows fill the slots a little better and cost more for each example."""

IntArray = npt.NDArray[np.integer]
Planner = Callable[[IntArray, Sequence[int]], IntArray]
"""(lengths_WxNxF, slots) to the row of each example in its window, (W, N), rows numbered from 0."""


@dataclass(frozen=True, eq=False)
class Packs:
    """P rows and the examples that share each."""

    examples: IntArray
    """(E,) numbers of the examples, row after row; within a row by their order of arrival."""
    offsets: IntArray
    """(P + 1,) where each row's examples begin."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, first: int, stop: int) -> "Packs":
        """Rows first..stop - 1, as one host of several takes them."""
        begin, end = self.offsets[first], self.offsets[stop]
        return Packs(self.examples[begin:end], self.offsets[first : stop + 1] - begin)


def pack_windows(
    lengths_WxNxF: npt.ArrayLike, slots: Sequence[int], max_segments: int | None = None
) -> tuple[Packs, ...]:
    """The rows of W windows of N examples; examples are numbered within their window.

    `lengths` are integers for F features, `slots` the room of each in a row, and `max_segments` the most examples in
    one row. Never more rows in a window than first-fit or next-fit take. Rows come in an order that does not follow
    their examples' lengths. Raises ValueError, with their number and the longest, if examples exceed a slot.
    """
    lengths, room = _checked(np.asarray(lengths_WxNxF), slots, max_segments)
    planned = [plan(lengths, room) for plan in (best_fit, first_fit, next_fit)]
    counts_PxW = np.stack([rows_WxN.max(axis=1, initial=-1) for rows_WxN in planned])
    winners = counts_PxW.argmin(axis=0)
    return tuple(_packs_of(planned[winner][window]) for window, winner in enumerate(winners.tolist()))


def best_fit(lengths_WxNxF: IntArray, slots: Sequence[int]) -> IntArray:
    """Best-fit by falling size, both measured as the sum of the shares of the slots. A `Planner`."""
    scale = math.lcm(*slots)
    dtype = np.int32 if len(slots) * scale < 2**31 - 1 else np.int64
    units = [dtype(scale // slot) for slot in slots]
    sizes_WxN = sum(lengths_WxNxF[..., f] * units[f] for f in range(len(slots)))
    order_WxN = np.argsort(-sizes_WxN, axis=1, kind="stable")

    def choose(room: list[IntArray], fits: npt.NDArray[np.bool_]) -> IntArray:
        left = room[0] * units[0]
        for feature, unit in zip(room[1:], units[1:], strict=True):
            left += feature * unit
        return np.where(fits, left, np.iinfo(dtype).max).argmin(axis=1)

    ordered = np.take_along_axis(lengths_WxNxF, order_WxN[..., None], axis=1)
    rows_WxN = np.empty(order_WxN.shape, np.int64)
    np.put_along_axis(rows_WxN, order_WxN, _fit(ordered, slots, choose), axis=1)
    return rows_WxN


def first_fit(lengths_WxNxF: IntArray, slots: Sequence[int]) -> IntArray:
    """Each example, in order of arrival, into the first row with room. A `Planner`."""
    return _fit(lengths_WxNxF, slots, lambda _, fits: fits.argmax(axis=1))


def next_fit(lengths_WxNxF: IntArray, slots: Sequence[int]) -> IntArray:
    """Each example, in order of arrival, into the open row, closed where it has no room (as SeqIO). A `Planner`."""
    windows, examples, features = lengths_WxNxF.shape
    rows_WxN = np.zeros((windows, examples), np.int64)
    used_WxF = np.zeros((windows, features), np.int64)
    row_W = np.zeros(windows, np.int64)
    for example in range(examples):
        lengths_WxF = lengths_WxNxF[:, example]
        used_WxF += lengths_WxF
        full_W = np.any(used_WxF > np.asarray(slots), axis=1)
        row_W += full_W
        used_WxF = np.where(full_W[:, None], lengths_WxF, used_WxF)
        rows_WxN[:, example] = row_W
    return rows_WxN


def _fit(
    lengths_WxNxF: IntArray,
    slots: Sequence[int],
    choose: Callable[[list[IntArray], npt.NDArray[np.bool_]], IntArray],
) -> IntArray:
    """Each example into the row that `choose` picks among those with room; one empty row is always among them."""
    windows, examples, features = lengths_WxNxF.shape
    dtype = np.int16 if max(slots) < 2**15 else np.int32 if max(slots) < 2**31 else np.int64
    lengths_FxNxW = np.ascontiguousarray(lengths_WxNxF.T, dtype)
    room = [np.full((windows, examples), slot, dtype) for slot in slots]
    rows_NxW = np.zeros((examples, windows), np.int64)
    every_window = np.arange(windows)
    opened = 0
    for example in range(examples):
        seen = [feature[:, : opened + 1] for feature in room]
        lengths_FxW = lengths_FxNxW[:, example]
        fits = seen[0] >= lengths_FxW[0][:, None]
        for feature in range(1, features):
            fits &= seen[feature] >= lengths_FxW[feature][:, None]
        row_W = choose(seen, fits)
        for feature in range(features):
            room[feature][every_window, row_W] -= lengths_FxW[feature]
        rows_NxW[example] = row_W
        opened = max(opened, min(int(row_W.max(initial=0)) + 1, examples - 1))
    return rows_NxW.T


def _checked(lengths_WxNxF: IntArray, slots: Sequence[int], max_segments: int | None) -> tuple[IntArray, list[int]]:
    """Lengths and slots, with the number of examples as one more feature where it is limited."""
    if lengths_WxNxF.ndim != 3 or lengths_WxNxF.shape[2] != len(slots) or lengths_WxNxF.dtype.kind not in "iu":
        raise ValueError(
            f"lengths must be integers of shape (windows, examples, {len(slots)}), "
            f"not {lengths_WxNxF.dtype} of {lengths_WxNxF.shape}"
        )
    if min(slots) < 1 or (max_segments is not None and max_segments < 1):
        raise ValueError(f"slots {tuple(slots)} and max_segments {max_segments} must be 1 or more")
    if lengths_WxNxF.size and lengths_WxNxF.min() < 0:
        raise ValueError("lengths must be 0 or more")
    too_long_WxN = np.any(lengths_WxNxF > np.asarray(slots), axis=2)
    if too_long_WxN.any():
        longest = lengths_WxNxF.max(axis=(0, 1)).tolist()
        raise ValueError(
            f"{np.count_nonzero(too_long_WxN)} of {too_long_WxN.size} examples are longer than their slots "
            f"{tuple(slots)}; the longest have {tuple(longest)}; trim or filter them first, or widen the slots"
        )
    signed = lengths_WxNxF.astype(np.int64)
    if max_segments is None:
        return signed, list(slots)
    return np.concatenate([signed, np.ones_like(signed[..., :1])], axis=2), [*slots, max_segments]


def _packs_of(rows_N: IntArray) -> Packs:
    """The rows of one window, in the order of a hash of each row's first example.

    By number, rows of few long examples would come together at one end, and so in the same batches.
    """
    examples_E = np.argsort(rows_N, kind="stable")
    counts_P = np.bincount(rows_N)
    starts_P = np.cumsum(counts_P) - counts_P
    order_P = np.argsort(hash64(examples_E[starts_P]), kind="stable")
    offsets = np.concatenate([[0], np.cumsum(counts_P[order_P])])
    moved_E = np.repeat(starts_P[order_P] - offsets[:-1], counts_P[order_P]) + np.arange(len(examples_E))
    return Packs(examples_E[moved_E], offsets)
