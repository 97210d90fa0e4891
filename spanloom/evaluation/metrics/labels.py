"""Metrics of classes: shares that are right, F1 and Matthews' correlation. All are times 100."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.evaluation.metrics.numbers import (
    FloatArray,
    Numbers,
    check_pairs,
    field,
    means,
    numbered,
    of_sums,
    ratio,
    same,
)


def accuracy(targets: Sequence[Any], predictions: Sequence[Any]) -> Numbers:
    """`accuracy`: the share of predictions that equal their targets (class numbers, texts, anything)."""
    check_pairs(targets, predictions)
    return means(accuracy=list(map(same, targets, predictions)))


def sequence_accuracy(targets: Sequence[Any], predictions: Sequence[Any]) -> Numbers:
    """`sequence_accuracy`: the share of texts that equal their targets to the last character."""
    check_pairs(targets, predictions)
    return means(sequence_accuracy=list(map(same, targets, predictions)))


def all_match(targets: Sequence[Any], predictions: Sequence[Any]) -> Numbers:
    """`exact_match`: 100 if every prediction equals its target, else 0; for groups, such as MultiRC's questions."""
    check_pairs(targets, predictions)
    wrong = [[not same(target, prediction)] for target, prediction in zip(targets, predictions, strict=True)]
    return of_sums(wrong, lambda sums: {"exact_match": 100.0 * (sums[:, 0] == 0)})


def f1(targets: Sequence[Any], predictions: Sequence[Any], positive: Any = 1) -> Numbers:
    """`f1` of one class, `positive`, which may be a text; anything else is not of that class."""
    check_pairs(targets, predictions)
    is_target = np.array([same(one, positive) for one in targets])
    is_predicted = np.array([same(one, positive) for one in predictions])
    return of_sums(hits(is_target, is_predicted), lambda sums: {"f1": 100 * f1_of(*sums.T)})


def f1_score_with_invalid(targets: Sequence[int], predictions: Sequence[Any]) -> Numbers:
    """`f1` of class 1 among 0 and 1; any other prediction counts as the class that is wrong.

    Raises ValueError for targets other than 0 and 1.
    """
    return of_sums(_with_invalid(targets, predictions), lambda sums: {"f1": 100 * f1_of(*sums.T)})


def multirc_f1_over_all_answers(targets: Sequence[Any], predictions: Sequence[Any]) -> Numbers:
    """`f1` over all answers of MultiRC: of the field 'value', which is 0 or 1 (see `postprocessors.multirc`).

    Where the targets name their question as 'group', a bootstrap draws questions with all their answers.
    """
    check_pairs(targets, predictions)
    values = (
        [field(one, "value", "targets") for one in targets],
        [field(one, "value", "predictions") for one in predictions],
    )
    hits_Nx3 = _with_invalid(*values)
    groups_N, groups = numbered(one.get("group", ("answer", number)) for number, one in enumerate(targets))
    hits_Gx3 = np.zeros((len(groups), 3))
    np.add.at(hits_Gx3, groups_N, hits_Nx3)
    return of_sums(hits_Gx3, lambda sums: {"f1": 100 * f1_of(*sums.T)})


def mean_multiclass_f1(targets: Sequence[int], predictions: Sequence[int], num_classes: int) -> Numbers:
    """`mean_<n>class_f1`: F1 of each class 0 to n - 1, and their mean; one that never occurs counts 0."""
    check_pairs(targets, predictions)
    classes = np.arange(num_classes)
    hits_NxCx3 = hits(np.asarray(targets)[:, None] == classes, np.asarray(predictions)[:, None] == classes)
    return of_sums(hits_NxCx3.reshape(len(targets), -1), lambda sums: mean_f1(sums.reshape(-1, num_classes, 3)))


def mean_f1(hits_BxCx3: FloatArray) -> dict[str, FloatArray]:
    """The mean over classes of F1, from how many are hit, wrongly predicted and missed."""
    found, wrong, missed = np.moveaxis(hits_BxCx3, -1, 0)
    return {f"mean_{hits_BxCx3.shape[1]}class_f1": 100 * f1_of(found, wrong, missed).mean(axis=-1)}


def matthews_corrcoef(targets: Sequence[Any], predictions: Sequence[Any]) -> Numbers:
    """`matthews_corrcoef`, of any number of classes (Gorodkin 2004); 0 where one side is constant."""
    check_pairs(targets, predictions)
    classes_2N, classes = numbered([*targets, *predictions])
    ofs_2NxC = np.eye(len(classes))[classes_2N]
    target_NxC, prediction_NxC = ofs_2NxC[: len(targets)], ofs_2NxC[len(targets) :]
    right_Nx1 = (target_NxC * prediction_NxC).sum(axis=1, keepdims=True)
    statistics = np.concatenate([right_Nx1, target_NxC, prediction_NxC], axis=1)

    def numbers(sums: FloatArray) -> dict[str, FloatArray]:
        target, prediction = np.split(sums[:, 1:], 2, axis=1)
        total = target.sum(axis=1)
        both = sums[:, 0] * total - (target * prediction).sum(axis=1)
        spread = [total**2 - (one**2).sum(axis=1) for one in (target, prediction)]
        return {"matthews_corrcoef": 100 * ratio(both, np.sqrt(spread[0] * spread[1]))}

    return of_sums(statistics, numbers)


def f1_of(found: FloatArray, wrong: FloatArray, missed: FloatArray) -> FloatArray:
    """F1, 0 to 1, of numbers of true positives, false positives and false negatives; 0 where there are none."""
    return ratio(2 * found, 2 * found + wrong + missed)


def hits(is_target: npt.NDArray[np.bool_], is_predicted: npt.NDArray[np.bool_]) -> FloatArray:
    """Whether each is a true positive, a false positive, a false negative: one axis more, of 3."""
    parts = (is_target & is_predicted, ~is_target & is_predicted, is_target & ~is_predicted)
    return np.stack(parts, axis=-1).astype(np.float64)


def _with_invalid(targets: Sequence[int], predictions: Sequence[Any]) -> FloatArray:
    check_pairs(targets, predictions)
    is_target = np.array([same(one, 1) for one in targets])
    for target, positive in zip(targets, is_target, strict=True):
        if not positive and not same(target, 0):
            raise ValueError(f"targets of this F1 are 0 or 1, and one is {target!r:.80}")
    is_zero, is_one = (np.array([same(one, value) for one in predictions]) for value in (0, 1))
    return hits(is_target, np.where(is_zero | is_one, is_one, ~is_target))
