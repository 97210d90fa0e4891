"""What the user sees: a live bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, TextIO

from spanloom.pipeline.build_progress import BuildProgress

_LEAST_BAR = 4
_SHOWN, _REMARKABLE = 0.01, 0.05  # shares of the time


@dataclass(frozen=True)
class Pace:
    """How training goes right now."""

    step: int
    """Updates done."""
    loss: float
    """Loss of the last one."""
    tokens_per_second: float
    """Tokens read and predicted, padding not counted."""
    mfu: float
    """Share of the machine's measured matmul peak."""
    seconds_left: float
    """Until the last step, at this pace."""
    learning_rate: float | None = None
    """Of the last step."""
    memory: float | None = None
    """Bytes in use, of the fullest device; None where nobody tells."""
    heldout_loss: float | None = None
    """The last one measured, if any was."""
    grad_norm: float | None = None
    """Of the last step, before clipping."""
    sides: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Tokens a second of encoder and decoder, without padding and with it."""
    times: Mapping[str, float] = field(default_factory=dict)
    """Shares of the time: step_time, data_wait, checkpoint_time and eval_time."""

    def describe(self, room: int | None = None) -> str:
        """One line, of at most `room` columns if the loss, the speed and the ETA fit in there."""
        told = {
            "loss": f"loss {self.loss:.4f}",
            "heldout": "" if self.heldout_loss is None else f"held-out {self.heldout_loss:.4f}",
            "rate": "" if self.learning_rate is None else f"lr {self.learning_rate:.3g}",
            "norm": "" if self.grad_norm is None else f"grad {self.grad_norm:.3g}",
            "speed": self._speed(),
            "mfu": f"MFU {self.mfu:.0%}",
            "memory": "" if self.memory is None else f"{amount(self.memory)}B",
            "times": self._times(),
            "left": f"ETA {duration(self.seconds_left)}",
        }
        in_all = {"speed": f"{self.tokens_per_second:,.0f} tokens/s"}
        for missed_least in ("memory", "speed", "rate", "norm", "mfu", "times", "heldout"):
            if room is None or len("  ".join(filter(None, told.values()))) <= room:
                break
            told[missed_least] = in_all.get(missed_least, "")
        return "  ".join(filter(None, told.values()))

    def _speed(self) -> str:
        """Encoder + decoder, of those with padding if there is any: '9.88k+2.47k of 11.2k+2.8k tokens/s'."""
        if not self.sides:
            return f"{self.tokens_per_second:,.0f} tokens/s"
        rates = zip(*self.sides.values(), strict=True)
        real, padded = ("+".join(amount(rate).replace(" ", "") for rate in sides) for sides in rates)
        return f"{real if real == padded else f'{real} of {padded}'} tokens/s"

    def _times(self) -> str:
        """Where the time goes, unless nearly all of it goes into steps."""
        named = {"step_time": "step", "data_wait": "data wait", "checkpoint_time": "checkpoint", "eval_time": "eval"}
        known = {name: share for name, share in self.times.items() if share >= _SHOWN}
        if max((share for name, share in known.items() if name != "step_time"), default=0.0) < _REMARKABLE:
            return ""
        return "time: " + ", ".join(f"{words} {known[name]:.0%}" for name, words in named.items() if name in known)


class Display(Protocol):
    """Where a run tells its user what happens."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def warn(self, text: str) -> None:
        """A line that stays and stands out."""

    def building(self, progress: BuildProgress) -> None:
        """How far the building of a store is."""

    def begin(self, done: int, total: int) -> None:
        """Training begins after `done` of `total` steps."""

    def advance(self, pace: Pace, log_line: bool) -> None:
        """A step was done; `log_line`: it is also one of metrics.jsonl."""

    def close(self) -> None:
        """Training is over."""


def make_display(stream: TextIO | None = None) -> "Display":
    """A bar if `stream` (standard output by default) is a terminal, else plain lines."""
    stream = stream or sys.stdout
    return TerminalDisplay(stream) if stream.isatty() else PlainDisplay(stream)


class SilentDisplay:
    """Says nothing: of several processes one speaks."""

    def say(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    def building(self, progress: BuildProgress) -> None:
        """Nothing."""

    def begin(self, done: int, total: int) -> None:
        """Nothing."""

    def advance(self, pace: Pace, log_line: bool) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainDisplay:
    """Lines only, for log files and pipes: at most one line of training every few seconds."""

    def __init__(self, stream: TextIO, seconds_between: float = 10.0) -> None:
        self._stream = stream
        self._seconds_between = seconds_between
        self._total = 0
        self._last_line = 0.0
        self._born = time.monotonic()

    def say(self, text: str) -> None:
        """A line. Where the reader has gone (`| head`), training goes on without one."""
        with contextlib.suppress(BrokenPipeError):
            print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        """A line that begins with 'warning:'."""
        self.say(f"warning: {text}")

    def building(self, progress: BuildProgress) -> None:
        """A line if the last one is long ago."""
        now = time.monotonic()
        if now - (self._last_line or self._born) >= self._seconds_between:
            self._last_line = now
            self.say(f"data: {describe_building(progress)}")

    def begin(self, done: int, total: int) -> None:
        """Remember the total; the first step's line comes at once."""
        self._total, self._last_line = total, 0.0

    def advance(self, pace: Pace, log_line: bool) -> None:
        """A line if the last one is long ago, and for the last step."""
        now = time.monotonic()
        if pace.step == self._total or ((log_line or not self._last_line) and self._due(now)):
            self._last_line = now
            self.say(f"step {pace.step}/{self._total}  {pace.describe()}")

    def close(self) -> None:
        """Nothing is held."""

    def _due(self, now: float) -> bool:
        return not self._last_line or now - self._last_line >= self._seconds_between


class TerminalDisplay:
    """A live bar with loss, learning rate, tokens/s, MFU, memory and ETA below the lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(file=stream, highlight=False)
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
            console=self._console,
            refresh_per_second=4,
        )
        self._task: Any = None
        self._room = 0
        self._status: Any = None

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False)

    def warn(self, text: str) -> None:
        """A yellow line above the bar."""
        self._console.print(f"warning: {text}", markup=False, style="yellow")

    def building(self, progress: BuildProgress) -> None:
        """A line that changes in place and goes away at the end."""
        if self._status is None:
            self._status = self._console.status("")
            self._status.start()
        self._status.update(f"data: {describe_building(progress)}")
        if progress.finished:
            self._status.stop()
            self._status = None

    def begin(self, done: int, total: int) -> None:
        """Show the bar."""
        around = len("step  0:00:00 ") + 2 * len(f"{total} ") + _LEAST_BAR
        self._room = self._console.width - around
        self._task = self._progress.add_task("", total=total, completed=done, pace="")
        self._progress.start()

    def advance(self, pace: Pace, log_line: bool) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=pace.step, pace=pace.describe(self._room))

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._status is not None:
            self._status.stop()
        self._progress.stop()


def describe_building(progress: BuildProgress) -> str:
    """One line on a store that is being built."""
    text = (
        f"building the {progress.split} store of {progress.task}: {progress.examples:,} documents, "
        f"{amount(progress.text_bytes)}B, {amount(progress.tokens)} tokens"
    )
    if progress.bytes_per_second:
        text += f" ({amount(progress.bytes_per_second)}B/s, {amount(progress.tokens_per_second)} tokens/s)"
    known = progress.seconds_left == progress.seconds_left  # not NaN
    return text + (f", ETA {duration(progress.seconds_left)}" if known and not progress.finished else "")


def duration(seconds: float) -> str:
    """'48 s', '3 min 20 s', '5 h 12 min', '3 d 4 h'."""
    if not seconds < 1e9:
        return "unknown"
    whole = round(seconds)
    for unit, name, size, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // size} {below}"
    return f"{whole} s"


def amount(number: float) -> str:
    """'950', '12.3 k', '1.23 M', '3.0 G': three digits and a unit of a thousand."""
    for unit in ("", " k", " M", " G", " T"):
        if abs(number) < 999.5:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g} P"


def times(number: float) -> str:
    """'2,810', '3.52', '0.0000128': three digits that count, written out."""
    return f"{Decimal(f'{number:.3g}'):,f}"
