"""Draws of a mixture whose tasks change on the way: tasks that use up their epochs, are added or weighed anew."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.pipeline.mixing import LARGEST_DRAW, Int64Array, Schedule, schedule_of
from spanloom.settings.mixture import Stop

UNLIMITED = -1
"""Limit of a task that never runs out."""

_ROUNDING = 3
"""No schedule is as many draws of a task off its rate."""


@dataclass(frozen=True, eq=False)
class Segment:
    """Draws from one schedule."""

    first: int
    """Its first draw."""
    schedule: Schedule
    """Its own draw 0 is draw `first`."""
    before: Int64Array
    """(T,) draws of each task before it."""


@dataclass(frozen=True, eq=False)
class MixingPlan:
    """All draws of a run, in segments; made by `plan_of` and `replanned`."""

    segments: tuple[Segment, ...]
    """In order; the first begins at draw 0."""
    end: int | None
    """Number of draws; None: endless."""

    def draws(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """(task, how often it was drawn before) of draws first..first + count - 1, as far as there are.

        Two int64 arrays, shorter than `count` at the end of the data.
        """
        stop = first + count if self.end is None else min(first + count, self.end)
        parts = []
        number = self._segment_of(first)
        while first < stop:
            segment = self.segments[number]
            is_last = number + 1 == len(self.segments)
            until = stop if is_last else min(stop, self.segments[number + 1].first)
            tasks, before = segment.schedule.draws(first - segment.first, until - first)
            parts.append((tasks, before + segment.before[tasks]))
            first, number = until, number + 1
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        tasks, before = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return tasks, before

    def counts(self, draw: int) -> Int64Array:
        """(T,) draws of each task among draws 0..draw - 1, tasks that were added later included."""
        segment = self.segments[self._segment_of(draw)]
        counts_T = np.zeros_like(self.segments[-1].before)
        counts_T[: len(segment.before)] = segment.before + segment.schedule.counts(draw - segment.first)
        return counts_T

    def _segment_of(self, draw: int) -> int:
        return bisect.bisect_right(self.segments, draw, key=lambda segment: segment.first) - 1


def plan_of(
    rates_T: npt.ArrayLike,
    limits_T: npt.ArrayLike | None = None,
    *,
    stop: Stop = "last",
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> MixingPlan:
    """The plan of T tasks; `limits_T` are the draws that each has (examples times epochs), or UNLIMITED.

    A task ends where it would be drawn once more than its limit. With `stop` "first" the data end there; with "last"
    the others share its rate, until all have ended; with "never" limits are refused. Tasks of rate 0 never end.
    Raises ValueError for wrong rates, and for limits below 1 of tasks that are drawn.
    """
    rates_T = np.asarray(rates_T, np.float64)
    start = np.zeros(len(rates_T), np.int64)
    return _extended((), 0, start, rates_T, _limits(limits_T, rates_T, stop), stop, seed, names)


def replanned(
    plan: MixingPlan,
    draw: int,
    rates_T: npt.ArrayLike,
    limits_T: npt.ArrayLike | None = None,
    *,
    stop: Stop = "last",
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> MixingPlan:
    """The plan with other rates from `draw` on: what was drawn before stays as it was, and counts go on.

    Tasks keep their numbers: new ones come last, and those left out are given rate 0. Limits count from draw 0.
    Raises ValueError where tasks are missing, or a task that is drawn is already past its limit.
    """
    if plan.end is not None and draw > plan.end:
        raise ValueError(f"draw {draw} is after the end of the data at draw {plan.end}")
    rates_T = np.asarray(rates_T, np.float64)
    counts = plan.counts(draw)
    if len(rates_T) < len(counts):
        raise ValueError(
            f"{len(rates_T)} rates for {len(counts)} tasks: keep all tasks, with rate 0 for those left out"
        )
    before = np.zeros(len(rates_T), np.int64)
    before[: len(counts)] = counts
    kept = tuple(segment for segment in plan.segments if segment.first < draw)
    return _extended(kept, draw, before, rates_T, _limits(limits_T, rates_T, stop), stop, seed, names)


def _limits(limits_T: npt.ArrayLike | None, rates_T: npt.NDArray[np.float64], stop: Stop) -> Int64Array:
    if limits_T is None:
        return np.full(len(rates_T), UNLIMITED, np.int64)
    limits = np.where(rates_T > 0, np.asarray(limits_T, np.int64), UNLIMITED)
    if ((limits < 1) & (limits != UNLIMITED)).any():
        raise ValueError(f"limits must be 1 or more, or {UNLIMITED} for none, not {limits.min()}")
    if stop == "never" and (limits != UNLIMITED).any():
        raise ValueError("a mixture that never stops has no tasks with epochs; leave them out, or stop first or last")
    return limits


def _extended(
    segments: tuple[Segment, ...],
    first: int,
    before: Int64Array,
    rates_T: npt.NDArray[np.float64],
    limits_T: Int64Array,
    stop: Stop,
    seed: int,
    names: Sequence[str] | None,
) -> MixingPlan:
    """The segments, and those that follow from `first` on until no task is left that could end."""
    if not rates_T.any():
        raise ValueError("all rates are 0: nothing would be drawn")
    limited = limits_T != UNLIMITED
    if (past := limited & (before > limits_T)).any():
        task = int(np.flatnonzero(past)[0])
        name = f"task {task}" if names is None else f"task {names[task]!r}"
        raise ValueError(
            f"{name} was already drawn {before[task]:,} times, more often than its limit of {limits_T[task]:,} (epochs "
            "times examples): give it more epochs, or rate 0"
        )
    found = list(segments)
    while True:
        if stop == "last":
            rates_T = np.where(limited & (before == limits_T), 0.0, rates_T)
            if not rates_T.any():
                return MixingPlan(tuple(found), first)
        schedule = schedule_of(rates_T, seed, names)
        found.append(Segment(first, schedule, before))
        length = _first_end(schedule, rates_T, np.where(limited, limits_T - before, UNLIMITED))
        if length is None:
            return MixingPlan(tuple(found), None)
        if stop == "first":
            return MixingPlan(tuple(found), first + length)
        first, before = first + length, before + schedule.counts(length)


def _first_end(schedule: Schedule, rates_T: npt.NDArray[np.float64], left_T: Int64Array) -> int | None:
    """The first draw of a task that has none left; None where all have enough for ever."""
    tasks = np.flatnonzero((left_T != UNLIMITED) & (rates_T > 0))
    if not len(tasks):
        return None
    shares = rates_T[tasks] / rates_T.sum()
    earliest = (left_T[tasks] - _ROUNDING) / shares
    latest = ((left_T[tasks] + _ROUNDING + 1) / shares).min()
    likely = tasks[earliest <= latest]
    end = min(schedule.draw_of(int(task), int(left_T[task])) for task in likely)
    return end if end < LARGEST_DRAW else None
