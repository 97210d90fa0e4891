"""Where the time of a run goes: waiting for data, steps, evaluating, saving."""

import contextlib
import time
from collections.abc import Callable, Iterator

APART = {"data": "data_wait", "checkpoint": "checkpoint_time", "eval": "eval_time"}
"""What is timed by itself, with its name in metrics.jsonl; all the rest is the step's."""


class TimeSplit:
    """Times what a run does, from `begin` on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` tells seconds."""
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """The run begins now."""
        self._born = self._since = self._clock()
        self._spent = dict.fromkeys(APART, 0.0)
        self._between = 0.0

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """The time inside is that of `what`, a key of APART."""
        begun = self._clock()
        try:
            yield
        finally:
            seconds = self._clock() - begun
            self._spent[what] += seconds
            self._between += seconds if what != "data" else 0.0

    def shares(self) -> dict[str, float]:
        """Shares of the time since the last call, 1 together: those of APART and `step_time`."""
        now = self._clock()
        total = max(now - self._since, 1e-9)
        shares = {name: min(self._spent[what] / total, 1.0) for what, name in APART.items()}
        self._since, self._spent = now, dict.fromkeys(APART, 0.0)
        return {**shares, "step_time": max(1.0 - sum(shares.values()), 0.0)}

    @property
    def stretch(self) -> float:
        """By how much evaluating and saving have made the run longer than its steps."""
        total = self._clock() - self._born
        return total / (total - self._between) if total > self._between else 1.0
