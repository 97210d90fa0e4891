import numpy as np
import pytest

from spanloom.report.downsample import columns_of
from spanloom.report.metrics import Curve

pytestmark = pytest.mark.short


def test_few_points_stay_as_they_are():
    shown = columns_of(Curve(np.arange(3.0), np.array([1.0, np.inf, 2.0])), 10)
    assert shown.steps.tolist() == [0, 1, 2] and not shown.is_band
    assert np.isnan(shown.mean[1]) and shown.mean[2] == 2


def test_no_peak_is_lost_and_means_are_of_all_points():
    values = np.random.default_rng(0).normal(size=100_000)
    values[54_321], values[77_777] = 50, -50
    curve = Curve(np.arange(1.0, 100_001), values)
    shown = columns_of(curve, 500)
    assert len(shown.steps) == 500 and shown.is_band
    assert shown.high.max() == 50 and shown.low.min() == -50
    assert (shown.low <= shown.mean).all() and (shown.mean <= shown.high).all()
    assert shown.steps[-1] == 100_000
    # Columns hold 200 points each, so that the mean of their means is that of all.
    assert abs(shown.mean.mean() - values.mean()) < 1e-3


def test_a_column_is_empty_only_where_all_of_it_is():
    values = np.ones(1000)
    values[:100], values[150] = np.nan, np.inf
    shown = columns_of(Curve(np.arange(1000.0), values), 10)
    assert np.isnan(shown.mean[0]) and shown.mean[1:] == pytest.approx(1) and shown.high[1] == 1


def test_uneven_steps_and_the_largest_numbers():
    steps = np.unique(np.concatenate([np.arange(1000.0), [1e15]]))
    shown = columns_of(Curve(steps, np.full(1001, 1e308)), 10)
    assert shown.mean.tolist() == pytest.approx([1e308, 1e308]) and shown.steps.tolist() == [999, 1e15]
