"""Figures of a run's tables."""

import json

import numpy as np
import pytest
from made_runs import make_run, run_of

from spanloom.report.metrics import Curve
from spanloom.report.run_tables import data, recent
from spanloom.report.run_view import views_of
from spanloom.tasks.rows import ROW


@pytest.mark.short
@pytest.mark.parametrize(("lines", "over"), [(1, 1), (20, 1), (22, 2), (100, 5), (1000, 50), (100_000, 50)])
def test_the_last_loss_is_that_of_the_end_however_short_the_run(lines, over):
    values = np.linspace(10, 2, lines)
    assert recent(Curve(np.arange(lines, dtype=float), values)) == pytest.approx(values[-over:].mean())


@pytest.mark.short
def test_without_numbers_there_is_none():
    assert recent(Curve(np.empty(0), np.empty(0))) is None
    assert recent(Curve(np.arange(3.0), np.full(3, np.nan))) is None


@pytest.mark.short
def test_what_a_row_holds_for_metrics_is_no_text_that_is_learnt(tmp_path):
    place = make_run(tmp_path / "a", run_of(("en",)))
    file = place / "stores" / "en" / "heldout" / "meta.json"
    meta = json.loads(file.read_text())
    lengths = {"inputs": 5, "targets": 2, ROW: 400}
    meta["counts"]["columns"] = {name: {"rows": 10, "tokens": 10 * length} for name, length in lengths.items()}
    file.write_text(json.dumps(meta))
    headings, rows = data(views_of([str(place)]))
    (row,) = (dict(zip(headings, row, strict=True)) for row in rows if "held out" in row)
    assert (row["tokens"], row["mean length (inputs+targets)"]) == ("70", "5.0+2.0")
