import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloom.evaluation.metrics.bootstrap import intervals
from spanloom.evaluation.metrics.rank_classification import rank_classification

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
scores = st.integers(-6, 0).map(lambda number: number / 2)
example = st.lists(st.tuples(scores, st.integers(1, 4)), min_size=1, max_size=5)
examples = st.lists(st.tuples(example, st.integers(0, 4), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=12)


def rows_of(found):
    targets, given_scores = [], []
    for number, (options, right, weight) in enumerate(found):
        for place, (score, length) in enumerate(options):
            targets.append(((number, place), place == right % len(options), weight, length))
            given_scores.append(score)
    return targets, given_scores


def by_hand(found, normalise):
    right, total = 0.0, 0.0
    for options, place, weight in found:
        values = [score / length if normalise else score for score, length in options]
        right += weight * (values.index(max(values)) == place % len(options))
        total += weight
    return 100 * right / total


@given(examples, st.booleans(), st.randoms(use_true_random=False))
@few
def test_any_numbers_of_options_in_any_order_the_first_of_equal_ones_wins(found, normalise, random):
    targets, given_scores = rows_of(found)
    order = list(range(len(targets)))
    random.shuffle(order)
    shuffled = [targets[i] for i in order], [given_scores[i] for i in order]
    measured = rank_classification(*shuffled, normalize_by_target_length=normalise)
    assert measured == {"accuracy": pytest.approx(by_hand(found, normalise))}
    assert measured.parts == (len(found),)


@given(examples)
@few
def test_intervals_hold_the_value(found):
    spread = intervals(rank_classification, *rows_of(found), resamples=20)["accuracy"]
    assert 0 <= spread.low <= spread.value <= spread.high <= 100


def test_two_classes_have_f1_and_curves_of_the_second():
    found = rank_classification(
        *rows_of([([(-1, 1), (-2, 1)], 0, 1), ([(-3, 1), (-1, 1)], 1, 1), ([(-1, 1), (-9, 1)], 1, 1)]), 2
    )
    assert found == pytest.approx(
        {"accuracy": 200 / 3, "f1": 200 / 3, "auc-roc": 50.0, "auc-pr": 100 * (0.5 + 0.5 * 2 / 3)}
    )


def test_a_resample_has_the_numbers_of_its_examples():
    made = [([(-k % 3, 1), (-1.5, 1)], k % 2, 1.0 + k % 3) for k in range(12)]
    found = rank_classification(*rows_of(made), 2)
    counts = np.array([[2.0, 0, 1, 1, 0, 3, 1, 1, 0, 1, 2, 0]])
    chosen = [made[i] for i in np.repeat(np.arange(12), counts[0].astype(int))]
    again = {name: float(values[0]) for name, values in found.again(counts).items()}
    assert again == pytest.approx(dict(rank_classification(*rows_of(chosen), 2)))


def test_three_classes_have_their_mean_f1_and_several_right_options_only_accuracy():
    rows = rows_of([([(-1, 1), (-2, 1), (-3, 1)], 0, 1), ([(-3, 1), (-1, 1), (-2, 1)], 2, 1)])
    assert rank_classification(*rows, 3) == pytest.approx({"accuracy": 50.0, "mean_3class_f1": 100 / 3})
    several = [(idx, True, weight, length) for idx, _, weight, length in rows[0]]
    assert rank_classification(several, rows[1], 3) == {"accuracy": 100.0}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, s: (t + t[:1], [*s, 0.0]), r"option 0 of example 0 is given twice \(1 are\)"),
        (lambda t, s: (t[:-1], s[:-1]), "example 1 has 1 options, not num_classes=2"),
        (lambda t, s: (t, [math.nan, *s[1:]]), "the score of option 0 of example 0 is not a number"),
        (lambda t, s: ([(*one[:2], 0.0, 1) for one in t], s), "the weights of all examples are 0"),
        (lambda t, s: ([one[:3] for one in t], s), r"targets are \(idx, is_correct, weight, length\)"),
        (lambda t, s: ([], []), "there are no examples to measure"),
        (lambda t, s: (t, s[1:]), "4 targets and 3 scores: there must be one of each"),
    ],
)
def test_what_cannot_be_ranked_is_said(change, said):
    targets, given_scores = rows_of([([(-1, 1), (-2, 1)], 0, 1), ([(-3, 1), (-1, 1)], 1, 1)])
    with pytest.raises(ValueError, match=said):
        rank_classification(*change(targets, given_scores), num_classes=2)
