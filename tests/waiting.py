"""Waiting for what other processes do."""

import time
from collections.abc import Callable


def until(happened: Callable[[], bool], seconds: float = 60.0, told: Callable[[], str] = lambda: "") -> None:
    """Until it has happened; where it does not in time the test fails, with what is told."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, told()
        time.sleep(0.05)
