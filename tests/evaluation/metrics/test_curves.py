import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_cases import needs

from spanloom.evaluation.metrics.curves import areas, auc

rows = st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 3)), min_size=1, max_size=30)


@given(rows)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.filterwarnings("ignore")
def test_areas_are_those_of_scikit_learn_with_ties_and_weights(rows):
    needs("sklearn")
    from sklearn.metrics import average_precision_score, roc_auc_score

    labels, scores, weights = (np.array(column, float) for column in zip(*rows, strict=True))
    ours = areas(labels == 1, scores, np.stack([np.ones(len(rows)), weights]))
    both = len(set(labels)) == 2
    for place, weight in enumerate([np.ones(len(rows)), weights]):
        if both and all(weight[labels == label].sum() for label in (0, 1)):
            assert ours["auc-roc"][place] == pytest.approx(roc_auc_score(labels, scores, sample_weight=weight))
            wanted = average_precision_score(labels, scores, sample_weight=weight)
            assert ours["auc-pr"][place] == pytest.approx(wanted)


def test_one_class_alone_has_no_roc():
    assert math.isnan(auc([1, 1], [0.2, 0.3])["auc-roc"]) and auc([1, 1], [0.2, 0.3])["auc-pr"] == 1.0
    assert math.isnan(auc([0, 0], [0.2, 0.3])["auc-roc"]) and auc([0, 0], [0.2, 0.3])["auc-pr"] == 0.0


def test_odd_targets_and_scores_are_refused():
    with pytest.raises(ValueError, match=r"targets of an AUC are 0 or 1; targets_threshold"):
        auc([0.3, 1], [1, 2])
    assert auc([0.3, 1], [1, 2], targets_threshold=0.3) == pytest.approx(
        {"auc-roc": math.nan, "auc-pr": 1.0}, nan_ok=True
    )
    with pytest.raises(ValueError, match="a score is not a number"):
        auc([0, 1], [math.nan, 2])
