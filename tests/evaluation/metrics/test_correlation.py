import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_cases import needs

from spanloom.evaluation.metrics.correlation import pearson_corrcoef, spearman_corrcoef

numbers = st.integers(-20, 20).map(lambda number: number / 8)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=30), st.sampled_from([0.0, 1e9]))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.filterwarnings("ignore")
def test_correlations_are_scipys(pairs, far):
    needs("scipy")
    import scipy.stats

    x, y = map(list, zip(*pairs, strict=True))
    x = [one + far for one in x]
    wanted = [100 * float(one(x, y)[0]) for one in (scipy.stats.pearsonr, scipy.stats.spearmanr)]
    found = [pearson_corrcoef(x, y)["pearson_corrcoef"], spearman_corrcoef(x, y)["spearman_corrcoef"]]
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("metric", [pearson_corrcoef, spearman_corrcoef])
def test_constants_and_what_is_no_number_have_none(metric):
    for targets, predictions in (([0.1] * 3, [1, 2, 3]), ([1, 2, 3], [0.1] * 3), ([1], [1]), ([1, 2], [math.nan, 1])):
        (value,) = metric(targets, predictions).values()
        assert math.isnan(value)
