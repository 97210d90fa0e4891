"""When a run ends before its last step, and what it does with a step that is no number."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Stopping:
    """Early stop, and steps whose loss or gradient is no number. May change on resume."""

    patience: int = 0
    """Held-out evaluations in a row without a better loss after which the run ends; 0: never. It then counts as
    finished with its best checkpoint."""
    min_improvement: float = 0.0
    """By how much, in nats, a held-out loss must be below the best one to be better."""
    nonfinite: Literal["stop", "skip"] = "stop"
    """What a NaN or infinite loss or gradient does. stop: the run ends, the last good checkpoint stays; skip: that
    update is left out, weights and optimizer stay as they were, and it is counted (`skipped` in metrics.jsonl)."""
    most_skipped: int = 10
    """Updates left out in a row after which the run ends all the same: more mend nothing."""
