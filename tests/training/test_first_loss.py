import math

import pytest

from spanloom.training.first_loss import FirstLoss

pytestmark = pytest.mark.short


def test_inside_the_band():
    first = FirstLoss(6.5, 384, 5.7, 7.2)
    assert first.warning() is None
    assert first.describe() == "first loss 6.500 nats a target token; ln V = 5.951 for V = 384; expected 5.70 to 7.20"


@pytest.mark.parametrize(
    ("loss", "low", "cause"),
    [
        (9.0, 5.7, "initialisation"),
        (0.5, 5.7, "leaks into the inputs"),
        (9.0, -math.inf, "sentinel convention"),
        (math.nan, 5.7, "outside the band"),
    ],
)
def test_outside_names_causes(loss, low, cause):
    assert cause in FirstLoss(loss, 384, low, 7.2).warning()


def test_a_start_checkpoint_may_be_as_good_as_it_likes():
    assert FirstLoss(0.01, 384, -math.inf, 7.2).warning() is None
    assert "at most 7.20" in FirstLoss(0.01, 384, -math.inf, 7.2).describe()
