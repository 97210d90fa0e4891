"""What the user sees while stores of many tasks are built: two live lines on a terminal, a few plain ones elsewhere."""

import sys
import time
from typing import Any, Protocol, TextIO

from spanloom.pipeline.build_progress import AllProgress, BuildProgress
from spanloom.training.progress import PlainDisplay, amount, duration

_SECONDS_BETWEEN = 10.0
_MOST_BETWEEN = 300.0
_PARTS = 20  # of the time that has passed: how long to say nothing


class BuildDisplay(Protocol):
    """Where the building of stores tells its user what happens."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def warn(self, text: str) -> None:
        """A line that stays and stands out."""

    def building(self, progress: AllProgress) -> None:
        """How far it is."""

    def close(self) -> None:
        """It is over."""


def make_build_display(stream: TextIO | None = None) -> BuildDisplay:
    """Live lines if `stream` (standard output by default) is a terminal, else plain ones."""
    stream = stream or sys.stdout
    return TerminalBuildDisplay(stream) if stream.isatty() else PlainBuildDisplay(stream)


class PlainBuildDisplay:
    """For log files and pipes: a line on the task at work and one on all of them, the rarer the longer it takes."""

    def __init__(self, stream: TextIO, seconds_between: float = _SECONDS_BETWEEN) -> None:
        self._lines = PlainDisplay(stream)
        self._between = seconds_between
        self._born = self._last = time.monotonic()

    def say(self, text: str) -> None:
        """A line."""
        self._lines.say(text)

    def warn(self, text: str) -> None:
        """A line that begins with 'warning:'."""
        self._lines.warn(text)

    def building(self, progress: AllProgress) -> None:
        """The lines, if the last ones are long ago."""
        now = time.monotonic()
        if now - self._last >= max(self._between, min((now - self._born) / _PARTS, _MOST_BETWEEN)):
            self._last = now
            for line in lines_of(progress):
                self.say(line)

    def close(self) -> None:
        """Nothing is held."""


class TerminalBuildDisplay:
    """Lines that change in place and go away at the end, below those that stay."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False)
        self._live: Any = Live(console=self._console, transient=True, refresh_per_second=4)
        self._begun = False

    def say(self, text: str) -> None:
        """A line above them."""
        self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """A yellow line above them."""
        self._console.print(f"warning: {text}", markup=False, style="yellow")

    def building(self, progress: AllProgress) -> None:
        """Changes them."""
        from rich.text import Text

        if not self._begun:
            self._begun = True
            self._live.start()
        # cut, not wrapped: the number of lines must stay as it is
        self._live.update(Text("\n".join(lines_of(progress)), no_wrap=True, overflow="ellipsis"))

    def close(self) -> None:
        """Takes them away."""
        if self._begun:
            self._live.stop()


def lines_of(progress: AllProgress) -> list[str]:
    """One line on the task at work, and one on all if there are several; short, and what matters most first."""
    lines = [f"data: {progress.current.task}: {_line(progress.current)}"]
    if progress.tasks > 1:
        lines.append(f"{progress.done:,} of {progress.tasks:,} tasks done: {_line(progress)}")
    return lines


def _line(told: BuildProgress | AllProgress) -> str:
    known = told.seconds_left == told.seconds_left  # not NaN
    return (
        (f"ETA {duration(told.seconds_left)}, " if known else "")
        + f"{told.examples:,} documents, {amount(told.text_bytes)}B, {amount(told.tokens)} tokens, "
        + f"{amount(told.bytes_per_second)}B/s, {amount(told.tokens_per_second)} tokens/s"
    )
