"""Bootstrap intervals of any metric: how far its numbers move when its examples are drawn again, with replacement.

The percentile method (Efron 1979; for metrics of text Koehn 2004, "Statistical significance tests for machine
translation evaluation"). Which examples are drawn is a hash of the seed, so the same on every machine and release.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from spanloom.evaluation.metrics.numbers import FloatArray, Numbers
from spanloom.tasks.randomness import hash64, key_of, uniform_below

RESAMPLES = 1000
_CELLS = 2**22  # resamples times units at once: 32 MiB an array


class Interval(NamedTuple):
    """A number, and where it may lie."""

    value: float
    low: float
    high: float


def intervals(
    metric: Callable[..., Mapping[str, float]],
    targets: Sequence[Any],
    predictions: Sequence[Any],
    *,
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """Each number of a metric with its interval; `level` is the share of resamples inside.

    Resamples in which a number is none (one class alone has no AUC) are left out. An interval is widened to hold the
    value, which the percentile method does not promise of skewed numbers. A metric of ours is computed once; any other
    is called on every resample. Raises ValueError for fewer than 2 resamples or a level outside (0, 1).
    """
    return of_numbers(metric(targets, predictions), metric, targets, predictions, resamples, level, seed)


def of_numbers(
    numbers: Mapping[str, float],
    metric: Callable[..., Mapping[str, float]],
    targets: Sequence[Any],
    predictions: Sequence[Any],
    resamples: int = RESAMPLES,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """`intervals`, where the metric's numbers on all examples are there already."""
    if resamples < 2 or not 0 < level < 1:
        raise ValueError(f"a bootstrap takes 2 resamples or more and a level in (0, 1), not {resamples} and {level}")
    if isinstance(numbers, Numbers):
        drawn = [numbers.again(counts_BxN) for counts_BxN in draws(numbers.parts, resamples, seed)]
    else:
        drawn = list(_called_again(metric, targets, predictions, resamples, seed))
    found = {}
    for name, value in numbers.items():
        values = [np.atleast_1d(np.asarray(one.get(name, np.nan), np.float64)) for one in drawn]
        found[name] = _interval(float(value), np.concatenate(values), level)
    return found


def draws(parts: Sequence[int], resamples: int, seed: int) -> Iterator[FloatArray]:
    """How often each unit is drawn, in blocks of resamples, (B, N) float64; as many from each part as it has."""
    block = max(1, _CELLS // max(sum(parts), 1))
    for first in range(0, resamples, block):
        rows_Bx1 = np.arange(first, min(first + block, resamples))[:, None]
        yield np.concatenate([_drawn(rows_Bx1, size, seed, part) for part, size in enumerate(parts)], axis=1)


def _drawn(rows_Bx1: np.ndarray, size: int, seed: int, part: int) -> FloatArray:
    count = len(rows_Bx1)
    hashes_BxN = hash64(key_of("bootstrap"), seed, part, rows_Bx1, np.arange(size))
    cells_BxN = uniform_below(hashes_BxN, size).astype(np.int64) + np.arange(count)[:, None] * size
    return np.bincount(cells_BxN.ravel(), minlength=count * size).reshape(count, size).astype(np.float64)


def _called_again(
    metric: Callable[..., Mapping[str, float]],
    targets: Sequence[Any],
    predictions: Sequence[Any],
    resamples: int,
    seed: int,
) -> Iterator[Mapping[str, Any]]:
    """The numbers of a metric that does not say how its examples count, on each resample."""
    for counts_BxN in draws((len(targets),), resamples, seed):
        for counts_N in counts_BxN.astype(np.int64):
            chosen = np.repeat(np.arange(len(targets)), counts_N).tolist()
            yield metric([targets[i] for i in chosen], [predictions[i] for i in chosen])


def _interval(value: float, drawn_B: FloatArray, level: float) -> Interval:
    finite = drawn_B[np.isfinite(drawn_B)]
    if not np.isfinite(value) or not len(finite):
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, min(float(low), value), max(float(high), value))
