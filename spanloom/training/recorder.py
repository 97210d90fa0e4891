"""Takes each step's metrics off the device, one step late, and passes them on: checks, log lines, the progress bar."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import jax

from spanloom.training.loggers import Logger
from spanloom.training.progress import Display, Pace
from spanloom.training.skipped import Skipped

T = TypeVar("T")

SMOOTHED_STEPS = 50  # the pace shown is the mean over so many


@dataclass(frozen=True)
class Speeds:
    """What turns step times into a share of the machine's speed."""

    flops_per_step: float
    """Model FLOPs of one step, forward and backward."""
    peak: float
    """Measured FLOP/s of the machine's matmul."""


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
        self._log_every = log_every
        self._last_step = last_step
        self._diverged = diverged
        self._most_skipped = most_skipped
        self.skipped = skipped or Skipped()
        """Updates left out until the last step fetched."""
        self._pending: tuple[int, Mapping[str, jax.Array]] | None = None
        self._recent: deque[tuple[float, int]] = deque(maxlen=SMOOTHED_STEPS)
        self._since_log: list[tuple[float, int]] = []
        self._waited = 0.0
        self._clock = time.perf_counter()
        self.last: dict[str, float] = {}
        """Metrics of the last step fetched."""

    def waited_for(self, batches: Iterable[T]) -> Iterator[T]:
        """The batches, one after another; the time that the loop waits for them is counted."""
        source = iter(batches)
        while True:
            begun = time.perf_counter()
            batch = next(source, None)
            if batch is None:
                return
            self._waited += time.perf_counter() - begun
            yield batch

    def add(self, step: int, metrics: Mapping[str, jax.Array]) -> None:
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
            self._clock = time.perf_counter()

    def _fetch(self, step: int, metrics: Mapping[str, jax.Array]) -> None:
        values = {name: float(value) for name, value in jax.device_get(dict(metrics)).items()}
        tokens = int(values["input_tokens"] + values["target_tokens"])
        now = time.perf_counter()
        self._recent.append((now - self._clock, tokens))
        self._since_log.append((now - self._clock, tokens))
        self._clock = now
        self._check_finite(step, values)
        if self._most_skipped:
            values = {**values, "skipped": float(self.skipped.total)}
        self.last = values
        logged = step % self._log_every == 0 or step in (1, self._last_step)
        if logged:
            measured = self._measured(self._since_log)
            seconds = measured["seconds_per_step"] * len(self._since_log)
            waiting = min(self._waited / seconds, 1.0)
            self._logger.write("train", step, {**values, **measured, "data_wait": waiting})
            self._since_log, self._waited = [], 0.0
        self._display.advance(self._pace(step, values["loss"]), logged)

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

    def _measured(self, steps: Iterable[tuple[float, int]]) -> dict[str, float]:
        times, tokens = zip(*steps, strict=True)
        seconds = sum(times)
        return {
            "tokens_per_second": sum(tokens) / seconds,
            "seconds_per_step": seconds / len(times),
            "mfu": self._speeds.flops_per_step * len(times) / seconds / self._speeds.peak,
        }

    def _pace(self, step: int, loss: float) -> Pace:
        measured = self._measured(self._recent)
        left = (self._last_step - step) * measured["seconds_per_step"]
        return Pace(step, loss, measured["tokens_per_second"], measured["mfu"], left)
