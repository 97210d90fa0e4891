"""A run's metrics.jsonl as curves, read on from where it was read to, while the run writes it.

A line that is torn or damaged is left out and counted. When a run goes on from a checkpoint it cuts the file back; what
was read before is dropped then, and all is read again.
"""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.pipeline.durable import json_object
from spanloom.report.run_files import RunFiles
from spanloom.report.segments import MetricsText
from spanloom.training.loggers import MEASURED_KINDS, METRICS_FILE

Float64Array = npt.NDArray[np.float64]

MOST_CURVES = 5_000
"""Curves of one run; what has more names than that is no run's."""
MOST_FILLS = 200
"""Evaluations of which it is kept what was filled in."""
_LARGEST_STEP = 2**53
_TRAINING = ("start", *MEASURED_KINDS)
_LAST_SECOND = 253_402_300_800  # the year 10000
_COMPARED = 256  # bytes before the place that was read to
_OTHERS = 1_000  # events of other kinds that are kept


@dataclass(frozen=True)
class Curve:
    """One number over steps."""

    steps: Float64Array
    """(N,) ascending, each once."""
    values: Float64Array
    """(N,) NaN where the run wrote down that it was no number."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def last(self) -> float | None:
        """The last number that is one."""
        found = self.values[np.isfinite(self.values)]
        return float(found[-1]) if len(found) else None

    @property
    def lowest(self) -> float | None:
        """The lowest number."""
        found = self.values[np.isfinite(self.values)]
        return float(found.min()) if len(found) else None

    def at(self, step: float) -> float | None:
        """The number of one step; None where it has none."""
        place = int(np.searchsorted(self.steps, step))
        found = place < len(self.steps) and self.steps[place] == step and math.isfinite(self.values[place])
        return float(self.values[place]) if found else None


NO_CURVE = Curve(np.empty(0), np.empty(0))


@dataclass
class _Points:
    """A curve while it is read."""

    steps: array = field(default_factory=lambda: array("d"))
    values: array = field(default_factory=lambda: array("d"))

    def curve(self) -> Curve:
        steps, values = np.array(self.steps, np.float64), np.array(self.values, np.float64)
        if len(steps) > 1 and not (np.diff(steps) > 0).all():  # none that a run wrote: the last line of a step counts
            order = np.argsort(steps, kind="stable")
            steps, values = steps[order], values[order]
            last = np.append(np.diff(steps) > 0, True)
            steps, values = steps[last], values[last]
        return Curve(steps, values)


class Metrics:
    """What a run has written so far."""

    def __init__(self, files: RunFiles) -> None:
        """Reads nothing yet, see `refresh`."""
        self._file = MetricsText(files, METRICS_FILE)
        self._forget()

    def _forget(self) -> None:
        self._read, self._before = 0, b""
        self._points: dict[tuple[str, str, str], _Points] = {}
        self._curves: dict[tuple[str, str, str], Curve] = {}
        self.events: list[dict[str, Any]] = []
        """Events of other kinds than train and eval, in their order: starts, a divergence, results."""
        self.damaged = 0
        """Lines that could not be read."""
        self.fills: dict[str, dict[int, Any]] = {}
        """What was filled in at evaluations, by task and step, as the run wrote it down."""
        self.last_step = 0
        """The highest step of any line."""
        self.times: tuple[float, float] | None = None
        """When the earliest and the latest line of training was written, in seconds since 1970; None: none says so.
        Results of a finished run are no such lines: whoever looks at them again has them written anew.
        """

    def refresh(self) -> bool:
        """Read what has come since; whether anything has, or was cut back."""
        size, known = self._file.size(), self._read
        if size == self._read and self._unchanged():
            return False
        if size < self._read or not self._unchanged():
            self._forget()
        found, rest = self._read < known, b""
        for block in self._file.blocks(self._read):
            whole, newline, rest = (rest + block).rpartition(b"\n")
            if newline:
                self._take(whole + newline)
                found = True
        return found

    def _unchanged(self) -> bool:
        """Whether the bytes before the place that was read to are still those that were read."""
        start = self._read - len(self._before)
        there = b""
        for block in self._file.blocks(start) if self._before else ():
            there += block
            if len(there) >= len(self._before):
                break
        return there[: len(self._before)] == self._before

    def _take(self, lines: bytes) -> None:
        self._read += len(lines)
        self._before = (self._before + lines)[-_COMPARED:]
        self._curves.clear()
        for line in lines.splitlines():
            event = json_object(line)
            if event is None or not _is_event(event):
                self.damaged += bool(line.strip())
            else:
                self._add(event)

    def _add(self, event: Mapping[str, Any]) -> None:
        kind, step, task = event["kind"], event["step"], event.get("task", "")
        self.last_step = max(self.last_step, step)
        if kind in _TRAINING and (written := _time(event.get("time"))) is not None:
            first, last = self.times or (written, written)
            self.times = min(first, written), max(last, written)
        if kind == "parameters":
            return
        if kind == "fills":
            self.fills.setdefault(task, {})[step] = event.get("fills")
            _thin(self.fills[task])
            return
        if kind not in ("train", "eval"):
            if len(self.events) == _OTHERS:
                del self.events[_OTHERS // 2]  # how a run began and how it ended is told by the first and the last
            self.events.append(dict(event))
            return
        for name, value in event.items():
            if name in ("kind", "step", "time", "task") or isinstance(value, bool):
                continue
            if value is None or isinstance(value, int | float):
                self._point((kind, task, name), step, math.nan if value is None else _float(value))

    def _point(self, key: tuple[str, str, str], step: int, value: float) -> None:
        points = self._points.get(key)
        if points is None:
            if len(self._points) >= MOST_CURVES:
                return
            points = self._points[key] = _Points()
        points.steps.append(step)
        points.values.append(value)

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that were evaluated, by first mention."""
        return list(dict.fromkeys(task for kind, task, _ in self._points if kind == "eval"))

    def names(self, kind: str, task: str = "") -> list[str]:
        """Names of the numbers of one kind of event, by first mention."""
        return [name for of_kind, of_task, name in self._points if (of_kind, of_task) == (kind, task)]

    def curve(self, kind: str, name: str, task: str = "") -> Curve:
        """One number over steps; empty where there is none."""
        key = (kind, task, name)
        if key not in self._curves:
            points = self._points.get(key)
            self._curves[key] = NO_CURVE if points is None else points.curve()
        return self._curves[key]

    @property
    def starts(self) -> list[dict[str, Any]]:
        """What was said of machine and versions at each start whose steps are kept."""
        return [event for event in self.events if event["kind"] == "start"]

    @property
    def diverged(self) -> dict[str, Any] | None:
        """The event with which a run ended whose numbers were none."""
        return next((event for event in reversed(self.events) if event["kind"] == "diverged"), None)


def _thin(fills: dict[int, Any]) -> None:
    """Of many evaluations every other one is dropped, the first and the last kept."""
    if len(fills) > MOST_FILLS:
        for step in list(fills)[1:-1:2]:
            del fills[step]


def _is_event(event: Mapping[str, Any]) -> bool:
    step, kind = event.get("step"), event.get("kind")
    return (
        type(step) is int
        and 0 <= step <= _LARGEST_STEP
        and isinstance(kind, str)
        and isinstance(event.get("task", ""), str)
    )


def _time(value: Any) -> float | None:
    """Seconds since 1970; None for what is no time of a run, nor of any calendar."""
    return float(value) if isinstance(value, int | float) and 0 < value < _LAST_SECOND else None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf if value > 0 else -math.inf
