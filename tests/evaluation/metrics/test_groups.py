from functools import partial

import numpy as np
import pytest

from spanloom.evaluation.metrics.bootstrap import intervals
from spanloom.evaluation.metrics.groups import deduplicate_metric, mean_group_metric, multirc, record
from spanloom.settings.function import FunctionError

TARGETS = [{"value": value, "group": group} for value, group in ((1, "q"), (0, "q"), (1, "r"), (0, "s"))]
MADE = [{"value": value} for value in (1, 0, 1, 1)]


def first(targets, predictions):
    return {"first": float(targets[0])} if targets[0] else {"none": 1.0}


def test_groups_count_alike_and_are_drawn_whole():
    found = mean_group_metric(TARGETS, MADE, metric="accuracy")
    assert found == {"accuracy": pytest.approx(200 / 3)} and found.parts == (3,)
    assert found.again(np.array([[3.0, 0, 0], [0, 0, 3.0]]))["accuracy"].tolist() == [100.0, 0.0]


def test_numbers_of_some_groups_alone_are_means_of_these():
    assert mean_group_metric(TARGETS, MADE, metric=first) == {"first": 1.0, "none": 1.0}


def test_groups_with_numbers_of_their_own_are_drawn_from_apart():
    metric = partial(mean_group_metric, metric="accuracy", return_subgroup_scores=True)
    targets = [{"value": 1, "group": group} for group in ["de"] * 20 + ["sv"] * 30]
    made = [{"value": value} for value in [1] * 20 + [1, 0] * 15]
    found = metric(targets, made)
    assert found == {"accuracy": 75.0, "de-accuracy": 100.0, "sv-accuracy": 50.0} and found.parts == (20, 30)
    spread = intervals(metric, targets, made, resamples=60)
    assert spread["de-accuracy"] == (100.0, 100.0, 100.0)
    assert spread["sv-accuracy"].low < 50 < spread["sv-accuracy"].high
    width = spread["sv-accuracy"].high - spread["sv-accuracy"].low
    assert spread["accuracy"].high - spread["accuracy"].low == pytest.approx(width / 2)
    plain = mean_group_metric(TARGETS, MADE, metric=first, return_subgroup_scores=True)
    assert plain == {"first": 1.0, "q-first": 1.0, "r-first": 1.0, "none": 1.0, "s-none": 1.0}


def test_the_first_of_a_group_counts():
    targets = [
        {"value": ["cat"], "group": [0, 1]},
        {"value": ["cat"], "group": [0, 1]},
        {"value": ["dog"], "group": [2]},
    ]
    made = [{"value": text} for text in ("cat", "wrong", "a dog")]
    assert record(targets, made) == {"em": 100.0, "f1": 100.0} == deduplicate_metric(targets, made, metric="squad")
    assert record(targets[::-1], made[::-1])["em"] == 50.0


def test_multirc_has_both_of_its_numbers():
    found = multirc(TARGETS, MADE)
    assert found == {"f1": pytest.approx(80.0), "exact_match": pytest.approx(200 / 3)} and found.parts == (3,)


def test_what_is_not_grouped_is_said():
    with pytest.raises(ValueError, match="targets must be dicts with 'group', as a postprocess makes them"):
        mean_group_metric([{"value": 1}], [{"value": 1}], metric="accuracy")
    with pytest.raises(FunctionError, match="there is none called 'acuracy'; did you mean accuracy"):
        mean_group_metric(TARGETS, MADE, metric="acuracy")
