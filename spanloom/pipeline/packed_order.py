"""The endless order of packed rows: any row by its window and its number there, with nothing to remember."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from spanloom.pipeline.packing import WINDOW, IntArray, Packs, pack_windows

_IN_STEP = 8
"""Windows planned together; which ones never changes a plan."""

Lengths = Callable[[int, int], IntArray]
"""(first draw, count) to the lengths of those draws, (count, features)."""


class WindowRow(NamedTuple):
    """Where in the packed rows a run stands."""

    window: int
    """Window of draws."""
    row: int
    """Next row of it."""


START = WindowRow(0, 0)
"""Before the first row."""


@dataclass(frozen=True, eq=False)
class PackedOrder:
    """Rows of packed draws. Window w is draws w * window to (w + 1) * window - 1, packed on its own.

    Which rows come after a position follows from the lengths of the draws alone: never from what was taken before, by
    whom, or in how many steps.
    """

    lengths: Lengths
    """Lengths of draws, from the store: planning reads no token."""
    slots: tuple[int, ...]
    """Room of each feature in a row."""
    max_segments: int | None = None
    """Most examples in a row."""
    num_draws: int | None = None
    """Draws there are; None: endless."""
    window: int = WINDOW
    """Draws packed together."""
    earlier: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """(window, slots): windows before that one have these slots, if no pair before says otherwise."""
    measured: int = 0
    """The window that tells, with its group, how many draws share a row."""

    _planned: dict[int, tuple[Packs, ...]] = field(default_factory=dict, init=False, repr=False)
    """The group of windows planned last: a memory for speed alone."""

    @property
    def group(self) -> int:
        """Draws whose lengths are asked for together."""
        return _IN_STEP * self.window

    def group_size(self, number: int) -> int:
        """Draws of a group: fewer where the data end."""
        return sum(self._draws_of(window) for window in self._windows_of(number))

    @property
    def draws_per_row(self) -> float:
        """The mean over the group of the window that is measured; 1 where there are no draws."""
        group = self.measured // _IN_STEP
        rows = sum(len(self._plan(window)) for window in self._windows_of(group) if self._draws_of(window))
        return self.group_size(group) / rows if rows else 1.0

    def first_draw(self, position: WindowRow) -> int:
        """The first draw whose length is asked for by whoever goes on from a position: the first of its group."""
        return position.window // _IN_STEP * self.group

    def take(self, position: WindowRow, count: int) -> tuple[Packs, WindowRow]:
        """`count` rows from a position on, fewer at the end of the data, with the numbers of their draws; what follows.

        Raises ValueError for a position that is none.
        """
        window, row = position
        parts: list[Packs] = []
        missing = count
        while missing > 0 and self._draws_of(window):
            packs = self._plan(window)
            if not 0 <= row <= len(packs):
                raise ValueError(f"window {window} has {len(packs)} rows, so that row {row} is no position in it")
            part = packs.rows(row, min(row + missing, len(packs)))
            parts.append(Packs(part.examples + window * self.window, part.offsets))
            missing -= len(part)
            row += len(part)
            if row == len(packs):
                window, row = window + 1, 0
        return _joined(parts), WindowRow(window, row)

    def _plan(self, window: int) -> Packs:
        group, number = divmod(window, _IN_STEP)
        plans = self._planned.get(group)
        if plans is None:
            plans = self._plan_group(group)
            self._planned.clear()
            self._planned[group] = plans
        return plans[number]

    def _plan_group(self, group: int) -> tuple[Packs, ...]:
        """Plans of its windows, as far as there are draws; a short last one has a shape of its own."""
        count = self.group_size(group)
        lengths_NxF = self.lengths(group * self.group, count)
        whole = count // self.window * self.window
        windows_WxNxF = lengths_NxF[:whole].reshape(-1, self.window, len(self.slots))
        plans: tuple[Packs, ...] = ()
        for slots, alike in groupby(self._windows_of(group), self._slots_of):
            own = slice(len(plans), len(plans) + len(list(alike)))
            plans += pack_windows(windows_WxNxF[own], slots, self.max_segments)
            if own.stop > len(windows_WxNxF) and whole < count:
                return plans + pack_windows(lengths_NxF[None, whole:], slots, self.max_segments)
        return plans

    def _slots_of(self, window: int) -> tuple[int, ...]:
        return next((slots for until, slots in self.earlier if window < until), self.slots)

    def _windows_of(self, group: int) -> range:
        return range(group * _IN_STEP, (group + 1) * _IN_STEP)

    def _draws_of(self, window: int) -> int:
        first = window * self.window
        return self.window if self.num_draws is None else min(max(self.num_draws - first, 0), self.window)


def _joined(parts: Sequence[Packs]) -> Packs:
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.offsets) for part in parts] or [np.empty(0, np.int64)])
    examples = np.concatenate([part.examples for part in parts] or [np.empty(0, np.int64)])
    return Packs(examples, np.concatenate([[0], np.cumsum(counts)]))
