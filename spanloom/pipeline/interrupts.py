"""Signals that end a program by an exception, also where that would be lost. Imports nothing heavy."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

SOON = 0.02
"""Seconds until a lost signal is sent again: what lost it is over then."""


class Terminated(SystemExit):
    """SIGTERM ended the program; its code is what shells report."""


@contextlib.contextmanager
def sent_again(kind: type[BaseException], lost: Callable[[], int]) -> Iterator[None]:
    """Inside, a signal is sent again wherever an exception of `kind`, which its handler raised, was lost.

    A handler runs where Python stands. That may be a callback of the garbage collector (JAX has one) or a `__del__`,
    whose exceptions Python prints and forgets: the program would go on to its end. `lost` says which signal it was.
    """
    former = sys.unraisablehook

    def hook(args: "sys.UnraisableHookArgs") -> None:
        if not issubclass(args.exc_type, kind):
            former(args)
            return
        with contextlib.suppress(RuntimeError):  # Python is ending, and begins no threads any more
            # A threading.Thread takes a lock to begin, which the interrupted code may hold.
            _thread.start_new_thread(_send_soon, (lost(),))

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = former


def _send_soon(number: int) -> None:
    time.sleep(SOON)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, number)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, as of a job whose time is up, ends the program by `Terminated`, where it would end at once otherwise: so
    that what is half-written is removed. Who answers it already goes on to."""
    alone = threading.current_thread() is threading.main_thread()
    if not alone or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Terminated(128 + number)

    with sent_again(Terminated, lambda: signal.SIGTERM):
        signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
