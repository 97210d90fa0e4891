"""Takes each step's metrics off the device, one step late, and passes them on: checks, log lines, the progress bar."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax

from spanloom.model.flops import train_flops
from spanloom.optim.parameter_rms import by_layer
from spanloom.settings.run import Run
from spanloom.training.loggers import Logger
from spanloom.training.machine import measure_peak, measured_peak
from spanloom.training.memory import memory_of
from spanloom.training.progress import Display, Pace
from spanloom.training.skipped import Skipped
from spanloom.training.time_split import TimeSplit

T = TypeVar("T")

SMOOTHED_STEPS = 50  # the pace shown is the mean over so many
MEASURED_AGAIN = 60.0  # seconds after which the peak is measured again where steps pause


@dataclass(frozen=True)
class Speeds:
    """What turns step times into a share of the machine's speed."""

    flops_per_step: float
    """Model FLOPs of one step, forward and backward."""
    peak: float
    """Measured FLOP/s of the machine's matmul."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Tokens of one step with padding, of encoder and decoder."""
    measure: Callable[[], float] | None = None
    """Measures the peak once more; None where it is not to be."""


def speeds_of(run: Run, lengths: Mapping[str, int], processes: int = 1) -> Speeds:
    """Those of a run with rows of these `lengths` on the devices of all its processes, measured here.

    A CPU may do other things at that moment, and look slower than it is: it is measured again as the run goes on.
    """
    flops = train_flops(run.model, run.batch_size, lengths["encoder"], lengths["decoder"])
    positions = {side: run.batch_size * length for side, length in lengths.items()}
    shared = jax.local_devices()[0].platform == "cpu"
    again = (lambda: measure_peak(run.model.dtype) * processes) if shared else None
    return Speeds(flops, measured_peak(run.model.dtype) * processes, positions, again)


class Recorder:
    """Holds the metrics of the last step until the next one is under way, so that the device never waits."""

    def __init__(
        self,
        logger: Logger,
        display: Display,
        speeds: Speeds,
        *,
        log_every: int,
        last_step: int,
        diverged: Callable[[int, str], Exception],
        most_skipped: int = 0,
        skipped: Skipped | None = None,
    ) -> None:
        """`diverged(step, what)` makes the error that is raised when a metric is not finite.

        Where such updates are left out, only once more than `most_skipped` steps in a row had such a metric; until
        then each is said, and counted on from `skipped`.
        """
        self._logger = logger
        self._display = display
        self._speeds = speeds
        self._peak, self._peak_measured = speeds.peak, time.perf_counter()
        self._log_every = log_every
        self._last_step = last_step
        self._diverged = diverged
        self._most_skipped = most_skipped
        self.skipped = skipped or Skipped()
        """Updates left out until the last step fetched."""
        self._pending: tuple[int, Mapping[str, Any]] | None = None
        self._recent: deque[_Timed] = deque(maxlen=SMOOTHED_STEPS)
        self._since_log: list[_Timed] = []
        self._split = TimeSplit()
        self._memory: dict[str, float] = {}
        self._clock = time.perf_counter()
        self.last: dict[str, float] = {}
        """Metrics of the last step fetched."""
        self.heldout_loss: float | None = None
        """The last one measured, for the user to see."""

    def waited_for(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, one after another; the time that the loop waits for them is counted."""
        source = iter(batches)
        self._split.begin()
        while True:
            with self._split.during("data"):
                batch = next(source, None)
            if batch is None:
                return
            yield batch

    def during(self, what: str) -> AbstractContextManager[None]:
        """The time inside is counted as that of `what`, eval or checkpoint."""
        return self._split.during(what)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take the metrics of `step`, which may still be computed, and fetch those of the step before."""
        before, self._pending = self._pending, (step, metrics)
        if before:
            self._fetch(*before)

    def flush(self) -> None:
        """Fetch what is held; waits for the device."""
        before, self._pending = self._pending, None
        if before:
            self._fetch(*before)

    def before_step(self) -> None:
        """Call before a step is started: the time since the last one does not count if it went into other things."""
        if self._pending is None:
            self._measure_peak()
            self._clock = time.perf_counter()

    def _measure_peak(self) -> None:
        """Now and then while the devices wait; the highest figure counts, as others can only make it look lower."""
        if self._speeds.measure and time.perf_counter() - self._peak_measured >= MEASURED_AGAIN:
            with self._split.during("eval"):  # which is what steps mostly pause for
                self._peak = max(self._peak, self._speeds.measure())
            self._peak_measured = time.perf_counter()

    def _fetch(self, step: int, metrics: Mapping[str, Any]) -> None:
        fetched = jax.device_get(dict(metrics))
        parameters = fetched.pop("parameters", None)
        values = {name: float(value) for name, value in fetched.items()}
        now = time.perf_counter()
        timed = _Timed(now - self._clock, values["input_tokens"], values["target_tokens"])
        self._recent.append(timed)
        self._since_log.append(timed)
        self._clock = now
        self._check_finite(step, values)
        if self._most_skipped:
            values = {**values, "skipped": float(self.skipped.total)}
        self.last = values
        logged = step % self._log_every == 0 or step in (1, self._last_step)
        if logged:
            self._memory = memory_of(jax.local_devices())
            measured = {**self._measured(self._since_log), **self._split.shares(), **self._memory}
            self._logger.write("train", step, {**values, **measured, "eta": self._seconds_left(step)})
            self._since_log = []
        if parameters is not None:
            self._logger.write("parameters", step, by_layer(parameters))
        self._display.advance(self._pace(step, values), logged)

    def _check_finite(self, step: int, values: Mapping[str, float]) -> None:
        bad = [name for name in ("loss", "grad_norm") if not math.isfinite(values[name])]
        self.skipped = self.skipped.after(bool(bad))
        if not bad:
            return
        what = f"the {bad[0].replace('_', ' ')} is {values[bad[0]]}"
        if self.skipped.in_a_row > self._most_skipped:
            self._logger.write("diverged", step, values)
            raise self._diverged(step, what)
        self._display.warn(
            f"step {step}: {what}; NaN updates are left out ({self.skipped.in_a_row} in a row, {self.skipped.total} in "
            "all)"
        )

    def _measured(self, steps: Iterable["_Timed"]) -> dict[str, float]:
        """Paces and MFU over some steps; evaluating and saving do not count."""
        steps = list(steps)
        seconds = sum(one.seconds for one in steps)
        real = {"encoder": sum(one.encoder for one in steps), "decoder": sum(one.decoder for one in steps)}
        padded = self._speeds.positions.items()
        reached = self._speeds.flops_per_step * len(steps) / seconds
        self._peak = max(self._peak, reached)  # the machine can do what it did
        return {
            "tokens_per_second": sum(real.values()) / seconds,
            **{f"{side}_tokens_per_second": tokens / seconds for side, tokens in real.items()},
            **{f"{side}_tokens_per_second_padded": n * len(steps) / seconds for side, n in padded},
            "seconds_per_step": seconds / len(steps),
            "flops_per_second": reached,
            "mfu": reached / self._peak,
        }

    def _seconds_left(self, step: int) -> float:
        """Until the last step, at the pace of the last ones and with as much else between them as there was so far."""
        seconds = sum(one.seconds for one in self._recent) / len(self._recent)
        return (self._last_step - step) * seconds * self._split.stretch

    def _pace(self, step: int, values: Mapping[str, float]) -> Pace:
        measured, sides = self._measured(self._recent), self._speeds.positions
        return Pace(
            step=step,
            loss=values["loss"],
            tokens_per_second=measured["tokens_per_second"],
            mfu=measured["mfu"],
            seconds_left=self._seconds_left(step),
            learning_rate=values["learning_rate"],
            memory=self._memory.get("memory_in_use"),
            heldout_loss=self.heldout_loss,
            grad_norm=values["grad_norm"],
            sides={side: (measured[name := f"{side}_tokens_per_second"], measured[f"{name}_padded"]) for side in sides},
            times=self._split.shares_in_all(),
        )


@dataclass(frozen=True)
class _Timed:
    """A step."""

    seconds: float
    encoder: float
    """Real tokens read."""
    decoder: float
    """Real tokens predicted."""
