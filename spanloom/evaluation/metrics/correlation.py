"""Correlations of numbers, times 100; not a number where one side is constant."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs

_CONSTANT = 1e-13
"""A share of the variance of all examples: a resample with less is one value, but for rounding."""


def pearson_corrcoef(targets: Sequence[float], predictions: Sequence[float]) -> Numbers:
    """`pearson_corrcoef`: how far one is a straight line of the other."""
    x_N, y_N = _numbers(targets, predictions)

    def again(counts_BxN: FloatArray) -> dict[str, FloatArray]:
        return {"pearson_corrcoef": 100 * _correlation(x_N[None], y_N[None], counts_BxN)}

    return Numbers(len(x_N), again)


def spearman_corrcoef(targets: Sequence[float], predictions: Sequence[float]) -> Numbers:
    """`spearman_corrcoef`: the correlation of ranks; equal numbers share the mean of theirs."""
    x_N, y_N = _numbers(targets, predictions)

    def again(counts_BxN: FloatArray) -> dict[str, FloatArray]:
        x_BxN, y_BxN = _ranks(x_N, counts_BxN), _ranks(y_N, counts_BxN)
        return {"spearman_corrcoef": 100 * _correlation(x_BxN, y_BxN, counts_BxN)}

    return Numbers(len(x_N), again)


def _numbers(targets: Sequence[float], predictions: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    check_pairs(targets, predictions)
    return np.asarray(targets, np.float64), np.asarray(predictions, np.float64)


def _correlation(x: FloatArray, y: FloatArray, counts_BxN: FloatArray) -> FloatArray:
    """Pearson's, of each row of counts: x and y are (1, N) or (B, N). (B,)"""
    total_Bx1 = counts_BxN.sum(axis=1, keepdims=True)
    centred = []
    for one in (x, y):
        from_middle = one - one.mean(axis=1, keepdims=True)  # so that squares of large numbers do not cancel
        centred.append(from_middle - (counts_BxN * from_middle).sum(axis=1, keepdims=True) / total_Bx1)
    x_BxN, y_BxN = centred
    spreads = [(counts_BxN * one**2).sum(axis=1) for one in centred]
    constant = np.zeros(len(counts_BxN), bool)
    for one, spread in zip((x, y), spreads, strict=True):
        constant |= (one == one[:, :1]).all(axis=1) | ~(spread > _CONSTANT * len(one[0]) * one.var(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        r_B = (counts_BxN * x_BxN * y_BxN).sum(axis=1) / np.sqrt(spreads[0]) / np.sqrt(spreads[1])
    return np.where(constant, np.nan, np.clip(r_B, -1, 1))


def _ranks(values_N: FloatArray, counts_BxN: FloatArray) -> npt.NDArray[np.float64]:
    """Mean ranks among the drawn, (B, N); not numbers where one of the values is none."""
    if np.isnan(values_N).any():
        return np.full(counts_BxN.shape, np.nan)
    order_N = np.argsort(values_N, kind="stable")
    starts_U = np.concatenate([[0], np.flatnonzero(np.diff(values_N[order_N])) + 1])
    drawn_BxU = np.add.reduceat(counts_BxN[:, order_N], starts_U, axis=1)
    ranks_BxU = np.cumsum(drawn_BxU, axis=1) - (drawn_BxU - 1) / 2
    return ranks_BxU[:, np.searchsorted(values_N[order_N][starts_U], values_N)]
