"""Classification by ranking: of each example's options the one with the best score is the answer.

As T0 (Sanh et al. 2022) and GPT-3 were measured: the score is the summed log-probability of an option's tokens, its end
of sequence included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from spanloom.evaluation.metrics.curves import areas
from spanloom.evaluation.metrics.labels import f1_of, hits, mean_f1
from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs, ratio


def rank_classification(
    targets: Sequence[Any],
    scores: Sequence[float],
    num_classes: int | None = None,
    normalize_by_target_length: bool = False,
) -> Numbers:
    """`accuracy`, times 100; of a fixed number of classes also F1, of two also the areas of the second one's curves.

    targets: (idx, is_correct, weight, length) of each option, in any order; idx is [example, option], length counts
    target tokens with their end of sequence. scores: one for each of them; the highest wins, of equal ones the first
    option. `num_classes`: how many options every example has, if they stand for classes; None: any number, and only
    accuracy. With several right options only accuracy, by whether the answer is any of them.
    `normalize_by_target_length`: scores are divided by lengths (T0 does not).

    Raises ValueError for an option that is given twice, examples with other numbers of options than `num_classes`, and
    scores that are no numbers.
    """
    check_pairs(targets, scores, "scores")
    table = _table(targets, scores, normalize_by_target_length)
    if num_classes is None:
        return _of_any_number(table)
    sizes = np.diff(np.append(table.starts_N, len(table.scores)))
    if (sizes != num_classes).any():
        wrong = int(np.flatnonzero(sizes != num_classes)[0])
        raise ValueError(
            f"example {table.examples[table.starts_N[wrong]]} has {sizes[wrong]} options, not num_classes={num_classes}"
        )
    return _of_classes(table, num_classes)


@dataclass(frozen=True)
class _Table:
    """Options in order of example and option."""

    examples: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    weights: FloatArray
    scores: FloatArray
    starts_N: npt.NDArray[np.int64]
    """Where each example's first option stands."""


def _table(targets: Sequence[Any], scores: Sequence[float], normalise: bool) -> _Table:
    for target in targets:
        if len(target) < 4 or np.ndim(target[0]) != 1 or len(target[0]) != 2:
            raise ValueError(
                f"targets are (idx, is_correct, weight, length) with idx = [example, option], as the postprocessor "
                f"rank_classification makes them; one is {target!r:.80}"
            )
    idx = np.asarray([target[0] for target in targets], np.int64)
    order = np.lexsort((idx[:, 1], idx[:, 0]))
    examples, options = idx[order].T
    twice = np.flatnonzero((np.diff(examples) == 0) & (np.diff(options) == 0))
    if len(twice):
        raise ValueError(
            f"option {options[twice[0]]} of example {examples[twice[0]]} is given twice ({len(twice):,} are): each "
            "must be scored once; several processes must not share examples"
        )
    values = np.asarray(scores, np.float64)[order]
    if np.isnan(values).any():
        bad = int(np.flatnonzero(np.isnan(values))[0])
        raise ValueError(f"the score of option {options[bad]} of example {examples[bad]} is not a number")
    if normalise:
        values = values / np.asarray([target[3] for target in targets], np.float64)[order]
    correct = np.asarray([bool(target[1]) for target in targets])[order]
    weights = np.asarray([float(target[2]) for target in targets])[order]
    starts_N = np.flatnonzero(np.append(True, np.diff(examples) != 0))
    return _Table(examples, correct, weights, values, starts_N)


def _best(table: _Table) -> npt.NDArray[np.int64]:
    """The place of each example's answer, (N,): the first of the best."""
    best_N = np.maximum.reduceat(table.scores, table.starts_N)
    example_of = np.repeat(np.arange(len(best_N)), np.diff(np.append(table.starts_N, len(table.scores))))
    places = np.flatnonzero(table.scores == best_N[example_of])
    return places[np.unique(example_of[places], return_index=True)[1]]


def _of_any_number(table: _Table) -> Numbers:
    """Each example weighs as much as its answer."""
    best_N = _best(table)
    return _accuracy(table.correct[best_N], table.weights[best_N])


def _accuracy(right_N: npt.NDArray[np.bool_], weights_N: FloatArray) -> Numbers:
    if not weights_N.sum() > 0:
        raise ValueError("the weights of all examples are 0: there is nothing to measure")

    def again(counts_BxN: FloatArray) -> dict[str, FloatArray]:
        # A resample may draw weights of 0 alone.
        return {"accuracy": ratio(100 * (counts_BxN @ (weights_N * right_N)), counts_BxN @ weights_N, np.nan)}

    return Numbers(len(right_N), again)


def _of_classes(table: _Table, classes: int) -> Numbers:
    """Each example weighs as much as its first option; scores are compared in float32, as the model gives them."""
    scores_NxC = table.scores.astype(np.float32).reshape(-1, classes)
    correct_NxC = table.correct.reshape(-1, classes)
    weights_N = table.weights.reshape(-1, classes)[:, 0]
    answer_N = scores_NxC.argmax(axis=1)
    right_N = correct_NxC[np.arange(len(answer_N)), answer_N]
    accuracy = _accuracy(right_N, weights_N)
    if (correct_NxC.sum(axis=1) > 1).any():
        return accuracy
    answer_NxC = np.eye(classes, dtype=bool)[answer_N]
    if classes != 2:
        flat_NxK = hits(correct_NxC, answer_NxC).reshape(len(answer_N), -1) * weights_N[:, None]
        return accuracy.with_more(
            Numbers(len(flat_NxK), lambda counts_BxN: mean_f1((counts_BxN @ flat_NxK).reshape(-1, classes, 3)))
        )
    return accuracy.with_more(_of_two(correct_NxC, scores_NxC, answer_N, weights_N))


def _of_two(
    correct_Nx2: npt.NDArray[np.bool_],
    scores_Nx2: npt.NDArray[np.float32],
    answer_N: npt.NDArray,
    weights_N: FloatArray,
) -> Numbers:
    """F1 and areas of the second class, whose score is its probability among the two (in float32, as T5's)."""
    hits_Nx3 = hits(correct_Nx2[:, 1], answer_N == 1) * weights_N[:, None]
    powers_Nx2 = np.exp(scores_Nx2 - scores_Nx2.max(axis=1, keepdims=True))
    probability_N = powers_Nx2[:, 1] / powers_Nx2.sum(axis=1)

    def again(counts_BxN: FloatArray) -> dict[str, FloatArray]:
        curves = areas(correct_Nx2[:, 1], probability_N, counts_BxN * weights_N)
        found, wrong, missed = (counts_BxN @ hits_Nx3).T
        return {"f1": 100 * f1_of(found, wrong, missed), **{name: 100 * one for name, one in curves.items()}}

    return Numbers(len(weights_N), again)
