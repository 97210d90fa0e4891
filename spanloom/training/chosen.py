"""Which checkpoint of a run another one begins with, and which one is its result."""

from pathlib import Path
from typing import Literal

from spanloom.settings.stopping import Stopping
from spanloom.training.checkpoint_paths import open_checkpoint
from spanloom.training.facts import read_facts
from spanloom.training.patience import stopped_early

Which = Literal["auto", "last", "best"]


def chosen(path: Path, which: Which = "auto", stopping: Stopping | None = None) -> Path:
    """The checkpoint meant by a run directory (or itself). auto: the best of a run that was ended early, else the last.

    `stopping`: as the run has it now; unset: as its last checkpoint has it. Raises CheckpointError as
    `open_checkpoint` does.
    """
    if which != "auto":
        return open_checkpoint(path, which)
    last = open_checkpoint(path)
    if last == path:
        return last
    facts = read_facts(last)
    return open_checkpoint(path, "best") if stopped_early(facts, stopping or facts.run.stopping) else last
