"""A signal that comes where Python prints and forgets what its handler raises."""

import signal
from collections.abc import Callable


class Dying:
    """Does something as it dies."""

    def __init__(self, last: Callable[[], object]) -> None:
        self.last = last

    def __del__(self) -> None:
        self.last()


def lose(number: int) -> None:
    """Send this process a signal while an object dies, as JAX's callback of the garbage collector may be at work."""
    Dying(lambda: signal.raise_signal(number))
