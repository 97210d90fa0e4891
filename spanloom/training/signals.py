"""Stopping politely: the first Ctrl-C or SIGTERM finishes the step and saves, the second ends the process at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TypeVar

from spanloom.pipeline.interrupts import sent_again
from spanloom.scale.processes import Crew

Item = TypeVar("Item")

EXIT_AT_ONCE = 130  # what shells report for a process ended by Ctrl-C


class Stopped(KeyboardInterrupt):
    """Raised where work is given up because the user or the scheduler asked the run to stop."""


class StopRequest:
    """Whether a stop was asked for. Outside `deferred()`, being asked raises `Stopped` where the program stands."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self._deferred = False

    @property
    def requested(self) -> bool:
        """True from the first signal on."""
        return self.signal_name is not None

    def check(self) -> None:
        """Raises `Stopped` if a stop was asked for."""
        if self.requested:
            raise Stopped(self.signal_name)

    def check_alone(self, crew: Crew) -> None:
        """Likewise, where this is the only process of its run: others would wait for it."""
        if crew.roll is None:
            self.check()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, a signal is only noted: the caller looks at `requested` where it is safe to stop."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False

    def until_requested(self, items: Iterable[Item]) -> Iterator[Item]:
        """`items`, until a stop is asked for; then `Stopped` is raised."""
        for item in items:
            self.check()
            yield item

    def forget(self) -> int:
        """As if nobody had asked: what was raised for it was lost. Gives the signal's number, to be sent again."""
        name, self.signal_name = self.signal_name, None
        return signal.Signals[name or "SIGTERM"]

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.requested:
            # The user asked twice. Threads may be in the middle of a write; a torn one never passes for a whole one.
            with contextlib.suppress(OSError):
                os.write(2, b"\nspanloom: ended at once; the same command goes on from the last checkpoint\n")
            os._exit(EXIT_AT_ONCE)
        self.signal_name = signal.Signals(number).name
        if not self._deferred:
            raise Stopped(self.signal_name)


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Route Ctrl-C (SIGINT) and SIGTERM to a `StopRequest`, and put the former handlers back afterwards.

    `Stopped` ends here: the program goes on after the `with` block. In a thread other than the main one
    signals cannot be routed, and the request simply never comes.
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    with sent_again(Stopped, stop.forget):
        former = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield stop
        except Stopped:
            pass
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
