"""Where the time of a run goes: waiting for data, steps, evaluating, saving."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

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
        self._before = dict.fromkeys(APART, 0.0)

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """The time inside is that of `what`, a key of APART."""
        begun = self._clock()
        try:
            yield
        finally:
            self._spent[what] += self._clock() - begun

    def shares(self) -> dict[str, float]:
        """Shares of the time since the last call, 1 together: those of APART and `step_time`."""
        now = self._clock()
        shares = _shares(self._spent, now - self._since)
        self._since, self._before, self._spent = now, self._in_all(), dict.fromkeys(APART, 0.0)
        return shares

    def shares_in_all(self) -> dict[str, float]:
        """Likewise of the time since the run began."""
        return _shares(self._in_all(), self._clock() - self._born)

    @property
    def stretch(self) -> float:
        """By how much evaluating and saving have made the run longer than its steps."""
        total, spent = self._clock() - self._born, self._in_all()
        between = spent["eval"] + spent["checkpoint"]
        return total / (total - between) if total > between else 1.0

    def _in_all(self) -> dict[str, float]:
        return {what: self._before[what] + self._spent[what] for what in APART}


def _shares(spent: Mapping[str, float], seconds: float) -> dict[str, float]:
    shares = {name: min(spent[what] / max(seconds, 1e-9), 1.0) for what, name in APART.items()}
    return {**shares, "step_time": max(1.0 - sum(shares.values()), 0.0)}
