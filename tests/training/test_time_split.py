import contextlib

import pytest

from spanloom.training.time_split import TimeSplit

pytestmark = pytest.mark.short


class Clock:
    """Tells the time that a test says it is."""

    now = 100.0

    def __call__(self):
        return self.now


def spend(split, clock, what, seconds):
    with split.during(what):
        clock.now += seconds


def test_shares_are_of_the_time_since_the_last_and_are_one_together():
    clock = Clock()
    split = TimeSplit(clock)
    clock.now += 7  # before the run begins
    split.begin()
    spend(split, clock, "data", 1)
    clock.now += 5
    spend(split, clock, "eval", 3)
    spend(split, clock, "checkpoint", 1)
    shares = split.shares()
    assert shares == pytest.approx({"data_wait": 0.1, "step_time": 0.5, "eval_time": 0.3, "checkpoint_time": 0.1})
    assert split.shares_in_all() == shares
    clock.now += 4
    assert split.shares_in_all()["step_time"] == pytest.approx(9 / 14)
    assert split.shares() == {"data_wait": 0, "step_time": 1, "eval_time": 0, "checkpoint_time": 0}


def test_evaluating_and_saving_stretch_the_run_and_waiting_for_data_does_not():
    clock = Clock()
    split = TimeSplit(clock)
    assert split.stretch == 1
    spend(split, clock, "data", 4)
    clock.now += 4
    assert split.stretch == 1
    spend(split, clock, "eval", 6)
    spend(split, clock, "checkpoint", 2)
    split.shares()
    assert split.stretch == pytest.approx(2)


def test_what_fails_inside_is_timed_too():
    clock = Clock()
    split = TimeSplit(clock)
    with contextlib.suppress(KeyError), split.during("eval"):
        clock.now += 2
        raise KeyError
    assert split.shares()["eval_time"] == 1
