import pytest
from metric_cases import needs

from spanloom.evaluation.metrics.scikit import sklearn_metric


def test_a_metric_by_its_name():
    needs("sklearn")
    assert sklearn_metric([0, 1], [0, 0], metric="zero_one_loss", name="wrong", scale=100) == {"wrong": 50.0}
    assert sklearn_metric([0, 1], [0, 1], metric="fbeta_score", beta=2.0) == {"fbeta_score": 1.0}
    with pytest.raises(ValueError, match="scikit-learn has no metric 'f1_scor'; did you mean f1_score"):
        sklearn_metric([0], [0], metric="f1_scor")
