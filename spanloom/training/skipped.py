"""How many updates were left out because their loss or gradient was no number."""

from dataclasses import asdict, dataclass

from spanloom.settings.optimizer import Adafactor
from spanloom.settings.run import Run


@dataclass(frozen=True)
class Skipped:
    """A count that stands in each checkpoint, so that a resumed run goes on counting."""

    total: int = 0
    """Since the run began."""
    in_a_row: int = 0
    """Up to the last step."""

    def after(self, skipped: bool) -> "Skipped":
        """After one more step."""
        return Skipped(self.total + skipped, self.in_a_row + 1 if skipped else 0)

    def to_data(self) -> dict[str, int]:
        """JSON data for a checkpoint."""
        return asdict(self)


def most_skipped(run: Run) -> int:
    """How many updates in a row a run may leave out; 0: none."""
    adafactor = isinstance(run.optimizer, Adafactor) and run.optimizer.skip_nan_updates
    return run.stopping.most_skipped if adafactor or run.stopping.nonfinite == "skip" else 0
