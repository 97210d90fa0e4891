"""What a run counts on from where it follows another one: steps that optimizer and schedule had done before its own.

A run's steps, its data and its dropout begin at 0 whatever it follows. The optimizer's state counts its own steps.
"""

from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp

from spanloom.optim.build import learning_rate
from spanloom.optim.schedules import Curve, Step
from spanloom.settings.optimizer import zero_from
from spanloom.settings.run import Run
from spanloom.training.facts import Facts


@dataclass(frozen=True)
class Origin:
    """Where the counts of a run begin."""

    optimizer: int = 0
    """Steps that the optimizer's state had counted at step 0 of the run, those whose updates were left out included."""
    schedule: int = 0
    """Step of the schedule at step 0 of the run."""
    rewarm_steps: int = 0
    """Steps over which the learning rate rises from 0 at first."""

    def describe(self) -> str:
        """In words."""
        optimizer = f"optimizer as after {self.optimizer:,} steps" if self.optimizer else "optimizer fresh"
        schedule = f", schedule at its step {self.schedule:,}" if self.schedule else ""
        rewarm = f", learning rate rising over {self.rewarm_steps:,} steps" if self.rewarm_steps else ""
        return optimizer + schedule + rewarm

    def to_data(self) -> dict[str, int]:
        """JSON data for a checkpoint."""
        return asdict(self)


FROM_THE_BEGINNING = Origin()
"""That of a run which follows none."""


def origin_in(facts: Facts) -> Origin:
    """That of a run of which there is a checkpoint."""
    return Origin(**facts.origin)


def reached(facts: Facts) -> Origin:
    """How far optimizer and schedule had come at a checkpoint, counted from where its run began to count."""
    before = origin_in(facts)
    return Origin(optimizer=before.optimizer + facts.step, schedule=before.schedule + facts.step)


def origin_after(run: Run, before: Origin | None) -> Origin:
    """That of a run which follows what had come so far; None: nothing is known of that."""
    come = before or Origin()
    return Origin(
        optimizer=come.optimizer if run.follow.optimizer == "continue" else 0,
        schedule=come.schedule if run.follow.schedule == "continue" else 0,
        rewarm_steps=run.follow.rewarm_steps,
    )


def rate_of_step(run: Run, origin: Origin) -> Curve:
    """The learning rate of the run's step 0, 1, ... (int32) as float32."""
    curve = learning_rate(run.optimizer, run.schedule)
    if origin == FROM_THE_BEGINNING:
        return curve

    def rate(step: Step) -> jax.Array:
        risen = jnp.minimum(1.0, step / origin.rewarm_steps) if origin.rewarm_steps else 1.0
        return curve(step + origin.schedule) * jnp.asarray(risen, jnp.float32)

    return rate


def rate_of_count(run: Run, origin: Origin) -> Curve:
    """Likewise of the step that the optimizer's state counts."""
    curve = rate_of_step(run, origin)
    # A state has counted fewer steps than its run did where updates were left out: no rate is that of a step below 0.
    return (lambda count: curve(jnp.maximum(count - origin.optimizer, 0))) if origin.optimizer else curve


def schedule_problem(run: Run, origin: Origin) -> str | None:
    """What is wrong with a schedule that goes on: whether it is at 0 before the run ends."""
    end, last = zero_from(run.schedule), origin.schedule + run.steps
    if end is None or last <= end:
        return None
    return (
        f"the schedule goes on at its step {origin.schedule:,}, and is at 0 from schedule.decay_steps = "
        f"{end:,} on, before the run's last step ({last:,} of the schedule): nothing would be learned "
        f"there. Give --schedule.decay-steps {last}, a --schedule.end-factor above 0, or --follow.schedule restart"
    )
