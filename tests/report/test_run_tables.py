"""Figures of a run's tables."""

import numpy as np
import pytest

from spanloom.report.metrics import Curve
from spanloom.report.run_tables import recent


@pytest.mark.short
@pytest.mark.parametrize(("lines", "over"), [(1, 1), (20, 1), (22, 2), (100, 5), (1000, 50), (100_000, 50)])
def test_the_last_loss_is_that_of_the_end_however_short_the_run(lines, over):
    values = np.linspace(10, 2, lines)
    assert recent(Curve(np.arange(lines, dtype=float), values)) == pytest.approx(values[-over:].mean())


@pytest.mark.short
def test_without_numbers_there_is_none():
    assert recent(Curve(np.empty(0), np.empty(0))) is None
    assert recent(Curve(np.arange(3.0), np.full(3, np.nan))) is None
