"""Which task each draw of a mixture is from, and how often that task was drawn before: random access, no counters.

A binary tree has the tasks as its leaves. Each inner node deals its draws out to its two sides at a fixed ratio r, by
Bresenham's line: of its first n draws floor(n * r + phase) go left. So the n-th draw of a node is the m-th of one of
its sides, with m in closed form; from the root down, a draw finds its task, and m at the leaf is how often the task was
drawn before. A draw costs one multiplication a level, and the mean number of levels is at most the entropy of the rates
in bits plus one (Shannon), so at most log2(tasks) + 1.

Why the counts are right. In any window of w draws of a node, the number that goes to one side is less than 1 off its
share of w. Handed down, the error at a leaf of weight x is below 1 + sum of x / W over the inner nodes of weights W
above it, the root excepted. The tree is that of Shannon's code (1948, "A mathematical theory of communication",
section 9) in canonical order: a task of probability p lies ceil(log2(1 / p)) levels deep, the likely ones to the left,
nodes with one child left out. Let x be at level l. Then 2**-l > x / 2, and every node that is full, which are all but
the last of each level, holds at least 2**-level. A full node k levels above x so holds x + (2**k - 1) 2**-l at least,
more than x (2**k + 1) / 2. The nodes that are not full contain one another, and each has a full left side: where the
first of them stands right above f full ones, the r-th holds more than x (2**(f + r - 1) + (1 - 2**f) / 2). The sum of
x / W is below 2 for every f: the worst is f = 0, with W at least x, 2x, 4x, and so on.

So in every window of every length, each task is drawn less than 3 times more or less often than its rate says, whatever
the rates. (The golden-ratio sequence does not give that: 10,000 successive multiples of the golden ratio can miss the
length of an interval by 4.35, and no other multiplier that was tried stayed below 3.4.)
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.tasks.randomness import UInt64Array, hash64, key_of

LARGEST_DRAW = 2**62
"""Draws are numbered below this; ratios have 64 bits, so that even then no count is off by a whole draw."""

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_SHIFT_32 = np.uint64(32)
_LOW_32 = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Schedule:
    """The endless sequence of draws from T tasks; made by `schedule_of`."""

    num_tasks: int
    """T, tasks of rate 0 included: they are never drawn."""
    ratios: UInt64Array
    """(N,) share of a node's draws that goes left, in units of 2**-64; node 0 is the root, and parents come first."""
    phases: UInt64Array
    """(N,) where a node's line starts, in the same units: what the seed decides."""
    children: Int64Array
    """(N, 2) right and left child: a node, or ~task."""
    root: int
    """0, or ~task where one task alone is ever drawn."""

    def draws(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """(task, how often it was drawn before) of draws first..first + count - 1; two (count,) int64 arrays.

        Raises ValueError for draws below 0 or from LARGEST_DRAW on.
        """
        if count < 0 or not 0 <= first <= LARGEST_DRAW - count:
            raise ValueError(f"draws {first}..{first + count} are not within 0..{LARGEST_DRAW}")
        positions = np.arange(count, dtype=np.uint64) + np.uint64(first)
        if self.root < 0:
            return np.full(count, ~self.root), positions.astype(np.int64)
        tasks, before = np.empty(count, np.int64), np.empty(count, np.int64)
        draws, nodes = np.arange(count), np.zeros(count, np.int64)
        short = first + count <= 2**32
        while len(draws):
            positions, is_left = self._deal(nodes, positions, short)
            nodes = self.children.ravel()[2 * nodes + is_left]
            arrived = nodes < 0
            if arrived.any():
                tasks[draws[arrived]] = ~nodes[arrived]
                before[draws[arrived]] = positions[arrived]
                draws, nodes, positions = draws[~arrived], nodes[~arrived], positions[~arrived]
        return tasks, before

    def counts(self, draw: int) -> Int64Array:
        """(T,) draws of each task among draws 0..draw - 1."""
        counts_T = np.zeros(self.num_tasks, np.int64)
        pending = {self.root: draw}
        lines = zip(self.ratios.tolist(), self.phases.tolist(), self.children.tolist(), strict=True)
        for node, (ratio, phase, (right_child, left_child)) in enumerate(lines):
            here = pending.pop(node)
            left = (here * ratio + phase) >> 64
            pending[left_child], pending[right_child] = left, here - left
        for leaf, count in pending.items():
            counts_T[~leaf] = count
        return counts_T

    def draw_of(self, task: int, count: int) -> int:
        """The draw that takes `task` for the time after `count` times: the inverse of `draws`.

        Raises ValueError for a task that is never drawn.
        """
        node = ~task
        while node != self.root:
            if node not in self._places:
                raise ValueError(f"task {task} is never drawn")
            parent, side = divmod(self._places[node], 2)
            count = self._before_nth(parent, bool(side), count)
            node = parent
        return count

    @functools.cached_property
    def _places(self) -> dict[int, int]:
        """Where each child stands among `children`, flattened."""
        return {child: place for place, child in enumerate(self.children.ravel().tolist())}

    def _before_nth(self, node: int, is_left: bool, count: int) -> int:
        """Draws of a node before the one that goes to a side after `count` others: the smallest n that fits."""
        ratio, phase = int(self.ratios[node]), int(self.phases[node])
        if is_left:
            return -(-(((count + 1) << 64) - phase) // ratio) - 1
        # n - floor((n * ratio + phase) / 2**64) = ceil((n * (2**64 - ratio) - phase) / 2**64)
        return ((count << 64) + phase) // ((1 << 64) - ratio)

    def _deal(self, nodes: Int64Array, positions: UInt64Array, short: bool) -> tuple[UInt64Array, BoolArray]:
        """Each draw's position among those of its side, and whether that is the left."""
        ratios, phases = self.ratios[nodes], self.phases[nodes]
        low = positions * ratios
        lefts = _high_word_short(positions, ratios) if short else _high_word(positions, ratios)
        shifted = low + phases
        lefts += shifted < low
        is_left = shifted + ratios < shifted
        return np.where(is_left, lefts, positions - lefts), is_left


def schedule_of(rates_T: npt.ArrayLike, seed: int = 0, names: Sequence[str] | None = None) -> Schedule:
    """The schedule of T tasks with these rates, which need not add up to 1.

    `names` make it independent of the tasks' order; without, their numbers do. Another seed starts every line of the
    tree elsewhere. Raises ValueError for rates that are negative, not finite or all 0.
    """
    rates = [float(rate) for rate in np.asarray(rates_T, np.float64)]
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates) or not any(rates):
        raise ValueError("rates must be finite, 0 or more, and at least one of them above 0")
    weights = _whole(rates)
    order = sorted(range(len(rates)), key=lambda task: (-weights[task], names[task] if names else task))
    tree = _Tree(weights)
    root = tree.grow([task for task in order if weights[task]])
    ratios_N, children_Nx2 = tree.arrays()
    nodes_N = np.arange(len(ratios_N))
    phases_N = hash64(seed, key_of("mixing"), nodes_N)
    return Schedule(len(rates), ratios_N, phases_N, children_Nx2, 0 if len(ratios_N) else root)


class _Tree:
    """The tree of Shannon's code, grown from the deepest level upwards."""

    def __init__(self, weights: list[int]):
        self._weights = {~task: weight for task, weight in enumerate(weights)}
        self._inner: list[tuple[int, int]] = []

    def grow(self, tasks: list[int]) -> int:
        """The root over these tasks, which come with falling weights."""
        total = sum(self._weights[~task] for task in tasks)
        levels: dict[int, list[int]] = {}
        for task in tasks:
            levels.setdefault((-(-total // self._weights[~task]) - 1).bit_length(), []).append(~task)
        nodes: list[int] = []
        for level in range(max(levels), 0, -1):
            nodes = levels.get(level, []) + nodes
            pairs = zip(nodes[::2], nodes[1::2], strict=False)
            nodes = [self._join(left, right) for left, right in pairs] + (nodes[-1:] if len(nodes) % 2 else [])
        (root,) = levels.get(0, []) + nodes
        return root

    def arrays(self) -> tuple[UInt64Array, Int64Array]:
        """(ratios_N, children_Nx2), renumbered so that the root is 0 and parents come first."""
        last = len(self._inner) - 1
        ratios, children = [], []
        for node, (left, right) in reversed([*enumerate(self._inner)]):
            ratio = (self._weights[left] << 64) // self._weights[node]
            ratios.append(min(max(ratio, 1), 2**64 - 1))
            children.append([child if child < 0 else last - child for child in (right, left)])
        return np.array(ratios, np.uint64), np.array(children, np.int64).reshape(-1, 2)

    def _join(self, left: int, right: int) -> int:
        node = len(self._inner)
        self._inner.append((left, right))
        self._weights[node] = self._weights[left] + self._weights[right]
        return node


def _whole(rates: list[float]) -> list[int]:
    """Integers in exactly the ratios of the rates."""
    ratios = [rate.as_integer_ratio() for rate in rates]
    common = max(denominator for _, denominator in ratios)  # a power of two, as all are
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _high_word(values: UInt64Array, factors: UInt64Array) -> UInt64Array:
    """floor(values * factors / 2**64)."""
    values_high, values_low = values >> _SHIFT_32, values & _LOW_32
    factors_high, factors_low = factors >> _SHIFT_32, factors & _LOW_32
    middle = values_high * factors_low + ((values_low * factors_low) >> _SHIFT_32)
    other = values_low * factors_high + (middle & _LOW_32)
    return values_high * factors_high + (middle >> _SHIFT_32) + (other >> _SHIFT_32)


def _high_word_short(values: UInt64Array, factors: UInt64Array) -> UInt64Array:
    """The same for values below 2**32."""
    return (values * (factors >> _SHIFT_32) + ((values * (factors & _LOW_32)) >> _SHIFT_32)) >> _SHIFT_32
