"""How a run goes on from another one: what it takes over beside the weights."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Follow:
    """What is taken over from the run that `start` names, or from the stage before, beside its weights.

    The three policies of continual training: to continue (optimizer continue, schedule continue), to reset (as it
    stands, for a start that is no Spanloom run, too), and to re-warm (optimizer continue, schedule restart,
    rewarm_steps above 0; Ibrahim et al. 2024).
    """

    which: Literal["auto", "last", "best"] = "auto"
    """Which of its checkpoints; auto: the best if that run was ended early by its held-out loss, else the last."""
    optimizer: Literal["reset", "continue"] = "reset"
    """reset: the optimizer begins without moments, at its step 0; continue: with the state that it had there."""
    schedule: Literal["restart", "continue"] = "restart"
    """restart: the schedule begins at its step 0; continue: at the step that it had come to."""
    rewarm_steps: int = 0
    """Steps over which the learning rate rises from 0 to the schedule's at first; 0: it begins with the schedule's."""
    vocabulary: Literal["same", "by_piece", "by_id"] = "same"
    """What to do where it was trained with another vocabulary than the run's. same: refuse; by_piece: the rows of
    embedding and head move to the ids that mean the same here (the optimizer must begin anew); by_id: they stay where
    they are, whatever the ids mean."""
    new_rows: Literal["parts", "bytes", "mean"] = "parts"
    """by_piece: what the row of a new piece begins as. parts: the mean of the rows of the pieces that the old
    vocabulary splits it into; bytes: of its bytes; mean: the mean of all rows of text."""
