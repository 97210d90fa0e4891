import pytest

from spanloom.settings.run import Checkpoints
from spanloom.training.retention import best_steps, kept

pytestmark = pytest.mark.short

LOSSES = {10: 3.0, 20: 1.0, 30: None, 40: 2.0, 50: 1.0, 60: float("nan"), 70: None}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Checkpoints(keep=2, keep_best=0), {60, 70}),
        (Checkpoints(keep=1, keep_best=1), {70, 20}),
        (Checkpoints(keep=1, keep_best=2), {70, 20, 50}),
        (Checkpoints(keep=1, keep_best=0, keep_every=20), {70, 20, 40, 60}),
        (Checkpoints(keep=100), set(LOSSES)),
    ],
)
def test_last_best_and_every(settings, expected):
    assert kept(LOSSES, settings) == expected


def test_unmeasured_and_nan_are_never_the_best():
    assert best_steps(LOSSES) == [20, 50, 40, 10]


def test_nothing_to_keep():
    assert kept({}, Checkpoints()) == set()
    assert best_steps({}) == []
