import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from lost_signals import lose

from spanloom.training.signals import EXIT_AT_ONCE, Stopped, stop_signals

pytestmark = pytest.mark.short


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_deferred_signal_is_only_noted(number):
    with stop_signals() as stop, stop.deferred():
        os.kill(os.getpid(), number)
        assert stop.requested
        assert stop.signal_name == number.name
        with pytest.raises(Stopped):
            list(stop.until_requested([1, 2]))


def test_before_training_a_signal_ends_the_block_at_once():
    reached = []
    with stop_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        reached.append("never")
    assert not reached


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("deferred_meanwhile", [False, True])
def test_a_signal_that_is_lost_comes_again_as_the_first(number, deferred_meanwhile):
    """Not as the second, which would end the process at once."""
    reached = []
    with stop_signals() as stop:
        lose(number)
        with stop.deferred() if deferred_meanwhile else contextlib.nullcontext():
            for _ in range(6000):
                if stop.requested:
                    break
                time.sleep(0.01)
            reached.append(stop.signal_name)
    assert reached == ([number.name] if deferred_meanwhile else [])


def test_handlers_are_put_back():
    former = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stop_signals():
        assert signal.getsignal(signal.SIGINT) != former[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == former


def test_items_come_while_nobody_asks():
    with stop_signals() as stop:
        assert list(stop.until_requested(iter("abc"))) == ["a", "b", "c"]


def test_in_another_thread_nothing_is_routed():
    found = []

    def body():
        with stop_signals() as stop:
            found.append(stop.requested)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [False]


def test_the_second_signal_ends_the_process_at_once():
    program = (
        "import os, signal, time\n"
        "from spanloom.training.signals import stop_signals\n"
        "with stop_signals() as stop, stop.deferred():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('one', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('two', flush=True)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (EXIT_AT_ONCE, "one\n")
    assert result.stderr == "\nspanloom: ended at once; the same command goes on from the last checkpoint\n"
