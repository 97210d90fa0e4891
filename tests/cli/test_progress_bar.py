from types import SimpleNamespace

import pytest

from spanloom.cli import progress_bar

pytestmark = pytest.mark.short


def test_how_far_it_is(capsys, monkeypatch):
    now = iter([0.0, 1.0, 20.0])
    monkeypatch.setattr(progress_bar, "time", SimpleNamespace(monotonic=lambda: next(now)))
    with progress_bar.ProgressBar("lines", 100, 20) as progress:
        progress.advance(5)
        progress.advance(15)
    assert capsys.readouterr().err == "40 of 100 lines, 1 a second\n"
