"""Areas under the curves of a score: receiver operating characteristic, and precision over recall."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs, ratio


def auc(targets: Sequence[Any], predictions: Sequence[float], targets_threshold: float | None = None) -> Numbers:
    """`auc-roc` and `auc-pr`, 0 to 1, of scores for targets 0 and 1, or for numbers of which those not below
    `targets_threshold` count as 1. One class alone has no `auc-roc` (not a number).

    Raises ValueError for other targets, and for scores that are no numbers.
    """
    check_pairs(targets, predictions)
    values = np.asarray(targets, np.float64)
    if targets_threshold is None and not np.isin(values, (0, 1)).all():
        raise ValueError("targets of an AUC are 0 or 1; targets_threshold makes these of other numbers")
    labels_N = values >= targets_threshold if targets_threshold is not None else values == 1
    scores_N = np.asarray(predictions, np.float64)
    return Numbers(len(labels_N), lambda counts_BxN: areas(labels_N, scores_N, counts_BxN))


def score_auc(targets: Sequence[Any], scores: Sequence[float], targets_threshold: float | None = None) -> Numbers:
    """`auc` of the model's own scores."""
    return auc(targets, scores, targets_threshold)


def areas(labels_N: npt.NDArray[np.bool_], scores_N: npt.NDArray, weights_BxN: FloatArray) -> dict[str, FloatArray]:
    """`auc-roc` by trapezoids and `auc-pr` as average precision, (B,), for each row of weights of the examples."""
    if np.isnan(scores_N).any():
        raise ValueError("a score is not a number: no curve can be drawn")
    order_N = np.argsort(-scores_N, kind="stable")
    ends_T = np.append(np.flatnonzero(np.diff(scores_N[order_N])), len(order_N) - 1)  # equal scores are one threshold
    weights_BxN, right_N = weights_BxN[:, order_N], labels_N[order_N]
    found_BxT = np.cumsum(weights_BxN * right_N, axis=1)[:, ends_T]
    wrong_BxT = np.cumsum(weights_BxN * ~right_N, axis=1)[:, ends_T]
    positives, negatives = found_BxT[:, -1], wrong_BxT[:, -1]
    more_found = np.diff(found_BxT, axis=1, prepend=0)
    more_wrong = np.diff(wrong_BxT, axis=1, prepend=0)
    under_roc = (more_wrong * (found_BxT - more_found / 2)).sum(axis=1)
    precision = ratio(found_BxT, found_BxT + wrong_BxT)
    return {
        "auc-roc": ratio(under_roc, positives * negatives, np.nan),
        "auc-pr": ratio((more_found * precision).sum(axis=1), positives),
    }
