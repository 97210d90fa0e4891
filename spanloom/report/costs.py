"""What a run has cost: time, devices and tokens, added up from what its training lines say of themselves.

A line tells the pace of the steps since the line before it, and which share of the time went into evaluating and
saving. Steps whose lines were lost with a kill, compiling and starting are not in it: they are in the time that went
by from a run's first line to its last, of which each line has the hour.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.report.metrics import Float64Array, Metrics
from spanloom.report.run_view import Stage


@dataclass(frozen=True)
class Cost:
    """Sums over all lines."""

    hours: float = 0.0
    """Of the clock, evaluating and saving included."""
    device_hours: float = 0.0
    """The same times the devices of the start that each line belongs to."""
    tokens: float = 0.0
    """Real tokens of both sides, without padding."""
    flops: float = 0.0
    """Model FLOPs of the steps."""
    elapsed: float = 0.0
    """Hours from the first line to the last, whatever went on between them; of stages, their sum. 0 where lines have no
    time."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.hours + other.hours,
            self.device_hours + other.device_hours,
            self.tokens + other.tokens,
            self.flops + other.flops,
            self.elapsed + other.elapsed,
        )


def cost_of(stages: Iterable[Stage]) -> Cost:
    """The cost of a run's stages."""
    return sum((_cost(stage.metrics) for stage in stages), Cost())


def _cost(metrics: Metrics) -> Cost:
    pace = metrics.curve("train", "seconds_per_step")
    elapsed = (metrics.times[1] - metrics.times[0]) / 3600 if metrics.times else 0.0
    if not len(pace):
        return Cost(elapsed=elapsed)
    first = [start["step"] for start in metrics.starts if start["step"] < pace.steps[0]]
    counts = np.diff(pace.steps, prepend=float(max(first, default=0)))
    seconds = counts * np.where(np.isfinite(pace.values), pace.values, 0.0)
    apart = np.zeros(len(pace))
    for name in ("eval_time", "checkpoint_time"):
        share = metrics.curve("train", name)
        if len(share) == len(pace):
            apart += np.nan_to_num(share.values)
    hours = seconds / np.maximum(1.0 - apart, 0.01) / 3600
    tokens = metrics.curve("train", "tokens_per_second")
    real = seconds * np.nan_to_num(tokens.values) if len(tokens) == len(pace) else np.zeros(1)
    flops = float(np.sum(seconds * _flops_per_second(metrics, pace.steps)))
    device_hours = float(np.sum(hours * _by_start(metrics, pace.steps, devices)))
    return Cost(float(np.sum(hours)), device_hours, float(np.sum(real)), flops, elapsed)


def _flops_per_second(metrics: Metrics, steps: Float64Array) -> Float64Array:
    """(N,) what the steps reached; of runs that did not write it down, their MFU times the peak of their start."""
    reached, mfu = metrics.curve("train", "flops_per_second"), metrics.curve("train", "mfu")
    if len(reached) == len(steps):
        return np.nan_to_num(reached.values)
    known = len(mfu) == len(steps)
    return np.nan_to_num(mfu.values) * _by_start(metrics, steps, _peak) if known else np.zeros(len(steps))


def _by_start(metrics: Metrics, steps: Float64Array, value: Callable[[Mapping[str, Any]], float]) -> Float64Array:
    """(N,) a number of the start that each step belongs to."""
    found = np.full(len(steps), value({}))
    for start in metrics.starts:
        found[steps > start["step"]] = value(start)
    return found


def devices(start: Mapping[str, Any]) -> float:
    """How many devices a start had, 1 where it does not say."""
    said = re.match(r"(\d{1,7}) x ", str(start.get("devices", "")))
    return float(said[1]) if said else 1.0


def _peak(start: Mapping[str, Any]) -> float:
    peak = start.get("peak_flops")
    return float(peak) if isinstance(peak, int | float) and 0 < peak < 1e30 else 0.0
