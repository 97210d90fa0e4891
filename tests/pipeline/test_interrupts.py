import signal
import sys
import time

import pytest
from lost_signals import Dying, lose

from spanloom.pipeline.interrupts import Terminated, ended_by_sigterm, sent_again

pytestmark = pytest.mark.short


def lose_and_wait(number, times=1):
    lose(number)
    for _ in range(times - 1):
        Dying(lambda: time.sleep(30))  # what is sent again comes while it waits, and is lost, too
    time.sleep(30)


def test_ctrl_c_that_is_lost_comes_again():
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), sent_again(KeyboardInterrupt, lambda: signal.SIGINT):
        lose_and_wait(signal.SIGINT)
    assert sys.unraisablehook is before


def test_it_comes_until_it_is_heard():
    times = []

    def lost():
        times.append(signal.SIGINT)
        return signal.SIGINT

    with pytest.raises(KeyboardInterrupt), sent_again(KeyboardInterrupt, lost):
        lose_and_wait(signal.SIGINT, times=3)
    assert len(times) == 3


def test_other_errors_are_told_as_before(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_type))

    class Failing:
        def __del__(self):
            raise LookupError

    with sent_again(KeyboardInterrupt, lambda: signal.SIGINT):
        Failing()
    assert told == [LookupError]


def test_sigterm_that_is_lost_comes_again():
    with pytest.raises(Terminated, match="143"), ended_by_sigterm():
        lose_and_wait(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
