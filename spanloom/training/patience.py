"""Early stop: whether a run is over because its held-out loss no longer falls.

What is counted stands in each checkpoint, so that it does not matter where a run was killed, or whether its metrics
are still there: an evaluation that was made after the last checkpoint is made again, and counted then.
"""

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from spanloom.settings.run import Run
from spanloom.settings.stopping import Stopping
from spanloom.training.facts import Facts
from spanloom.training.progress import Display


@dataclass(frozen=True)
class Patience:
    """The held-out losses so far, as far as they decide."""

    best: float | None = None
    """The lowest; of several that differ by less than `min_improvement` the first."""
    best_step: int = 0
    """Step at which it was measured."""
    since: int = 0
    """Evaluations after it."""
    counted: int = 0
    """Step of the last one."""

    def after(self, step: int, loss: float | None, run: Run) -> "Patience":
        """After an evaluation at `step`; None: there was none. One that is no number is not better.

        The evaluation of a last step counts only if it was due: a run whose steps are raised is to end where one does
        that had them from the beginning.
        """
        if loss is None or step <= self.counted or step % run.eval.every:
            return self
        if math.isfinite(loss) and (self.best is None or loss < self.best - run.stopping.min_improvement):
            return Patience(loss, step, 0, step)
        return replace(self, since=self.since + 1, counted=step)

    def ended(self, settings: Stopping) -> bool:
        """Whether the run is over."""
        return 0 < settings.patience <= self.since

    def describe(self, settings: Stopping) -> str:
        """Why it is, and the ways on."""
        loss = "none was a number" if self.best is None else f"the best is {self.best:.4f}, of step {self.best_step:,}"
        least = f" by {settings.min_improvement:g}" if settings.min_improvement else ""
        return (
            f"stopped early after step {self.counted:,}: in {self.since} evaluations the held-out loss was not better"
            f"{least} ({loss}). To train on: --stopping.patience N with a larger N, or 0 for no early stop"
        )

    def to_data(self) -> dict[str, Any]:
        """JSON data for a checkpoint."""
        return asdict(self)


def patience_of(facts: Facts | None) -> Patience:
    """As it stands in a checkpoint, with a held-out loss that was measured at its step after it was written; None:
    there is none.
    """
    if facts is None:
        return Patience()
    return Patience(**facts.patience).after(facts.step, facts.heldout_loss, facts.run)


def stopped_early(facts: Facts, settings: Stopping) -> bool:
    """Whether the run of a checkpoint is over, though it may have steps left."""
    return patience_of(facts).ended(settings)


def say_finished(display: Display, run: Run, directory: Path, patience: Patience) -> None:
    """That the run is over, and how to train on."""
    if patience.ended(run.stopping):
        display.say(patience.describe(run.stopping))
    else:
        display.say(f"all {run.steps:,} steps are done; to train on: spanloom train {directory} --steps N")
