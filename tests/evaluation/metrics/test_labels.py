import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_cases import needs

from spanloom.evaluation.metrics.labels import (
    all_match,
    f1,
    f1_score_with_invalid,
    matthews_corrcoef,
    mean_multiclass_f1,
    multirc_f1_over_all_answers,
)

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 3)), min_size=1, max_size=30)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(pairs)
@few
@pytest.mark.filterwarnings("ignore")
def test_classes_are_measured_as_scikit_learn_does(found):
    needs("sklearn")
    from sklearn import metrics as sk

    targets, predictions = map(list, zip(*found, strict=True))
    ours = mean_multiclass_f1(targets, predictions, 4)["mean_4class_f1"]
    assert ours == pytest.approx(
        100 * sk.f1_score(targets, predictions, labels=range(4), average="macro", zero_division=0)
    )
    ours = matthews_corrcoef(targets, predictions)["matthews_corrcoef"]
    assert ours == pytest.approx(100 * sk.matthews_corrcoef(targets, predictions), abs=1e-9)
    binary = [target % 2 for target in targets], [prediction == 1 for prediction in predictions]
    assert f1_score_with_invalid(*binary)["f1"] == pytest.approx(100 * sk.f1_score(*binary, zero_division=0))


def test_f1_of_a_class_that_is_a_text():
    found = f1(["yes", "no", "yes", "yes"], ["yes", "yes", "no", "maybe"], positive="yes")
    assert found == {"f1": pytest.approx(100 * 2 / (2 + 1 + 2))}


def test_what_is_neither_class_is_the_wrong_one():
    assert f1_score_with_invalid([1, 1, 0], [1, 2, "x"])["f1"] == 50.0
    assert f1_score_with_invalid(np.array([1, 0]), np.array([1, 0]))["f1"] == 100.0
    with pytest.raises(ValueError, match="targets of this F1 are 0 or 1, and one is 'yes'"):
        f1_score_with_invalid(["yes"], [1])


def test_all_match_takes_anything():
    assert all_match([[1, 2], "a"], [[1, 2], "a"]) == {"exact_match": 100.0}
    assert all_match([[1, 2], "a"], [[1, 2], "b"]) == {"exact_match": 0.0}


def test_answers_of_a_question_are_drawn_together():
    targets = [{"value": 1, "group": "q"}, {"value": 0, "group": "q"}, {"value": 1, "group": "r"}]
    found = multirc_f1_over_all_answers(targets, [{"value": 1}, {"value": 1}, {"value": 0}])
    assert found == {"f1": 50.0} and found.parts == (2,)
    assert found.again(np.array([[2.0, 0.0], [0.0, 2.0]]))["f1"].tolist() == [pytest.approx(200 / 3), 0.0]
    with pytest.raises(ValueError, match="predictions must be dicts with 'value'"):
        multirc_f1_over_all_answers(targets, [1, 1, 0])
