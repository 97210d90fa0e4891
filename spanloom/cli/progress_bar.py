"""How far a long command is."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_SECONDS_BETWEEN = 10.0


@contextlib.contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar that what it gives counts on."""
    with ProgressBar(what, total) as bar:
        yield bar.advance


class ProgressBar:
    """How far it is, on standard error: a bar on a terminal, else a line now and then."""

    def __init__(self, what: str, total: int | None, done: int = 0) -> None:
        """`what` is counted, of which `total` are to come (None: nobody knows), `done` of them before now."""
        self._what, self._total, self._done, self._begun = what, total, done, done
        self._born = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(self._what), MofNCompleteColumn(), BarColumn(bar_width=None), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True))
            self._task = self._bar.add_task("", total=self._total, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif now - self._last >= _SECONDS_BETWEEN:
            self._last = now
            of = "" if self._total is None else f" of {self._total:,}"
            pace = (self._done - self._begun) / (now - self._born)
            print(f"{self._done:,}{of} {self._what}, {pace:.3g} a second", file=sys.stderr)
