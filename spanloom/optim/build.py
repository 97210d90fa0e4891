"""From optimizer and schedule settings to an optax transformation."""

from typing import Any

import optax

from spanloom.optim import schedules
from spanloom.optim.adafactor import adafactor
from spanloom.optim.adamw import adamw
from spanloom.settings.optimizer import Adafactor, Optimizer, Schedule


def learning_rate(optimizer: Optimizer, schedule: Schedule) -> schedules.Curve:
    """The learning rate of step 0, 1, ...: a function from the step (int32) to float32, as logged and as used."""
    return schedules.learning_rate(schedule, optimizer.learning_rate)


def build(optimizer: Optimizer, schedule: Schedule, specs: Any) -> optax.GradientTransformation:
    """The optimizer for the parameters that `specs` declares (a pytree of leaves with `shape` and `axes`).

    Call `update(grads, state, params)` and add the updates to the parameters (`optax.apply_updates`). The state
    counts its own steps. Raises ValueError for settings that contradict each other or do not fit a parameter.
    """
    rate = learning_rate(optimizer, schedule)
    if isinstance(optimizer, Adafactor):
        return adafactor(optimizer, rate, specs)
    return adamw(optimizer, rate, specs)
