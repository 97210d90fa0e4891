"""From optimizer and schedule settings to an optax transformation."""

from typing import Any

import optax

from spanloom.optim import schedules
from spanloom.optim.adafactor import adafactor
from spanloom.optim.averaged import with_average
from spanloom.optim.chains import chain
from spanloom.optim.rounding import rounded
from spanloom.optim.schedule_free import schedule_free
from spanloom.settings.optimizer import Adafactor, Optimizer, Schedule, ScheduleFree
from spanloom.settings.weights import Weights


def learning_rate(optimizer: Optimizer, schedule: Schedule | schedules.Curve) -> schedules.Curve:
    """The learning rate of step 0, 1, ...: a function from the step (int32) to float32, as logged and as used."""
    if callable(schedule):  # already a rate, such as that of a run which goes on where another one ended
        return schedule
    return schedules.learning_rate(schedule, optimizer.learning_rate)


def build(
    optimizer: Optimizer,
    schedule: Schedule | schedules.Curve,
    specs: Any,
    weights: Weights | None = None,
    seed: int = 0,
) -> optax.GradientTransformation:
    """The optimizer for the parameters that `specs` declares (a pytree of leaves with `shape` and `axes`).

    Call `update(grads, state, params)` and add the updates to the parameters (`optax.apply_updates`), which are in the
    type that `weights` asks for (`spanloom.optim.rounding.as_kept`; unset: float32). The state counts its own steps;
    averaged weights are in it (`spanloom.optim.averaged.averaged_params`). `seed` is that of stochastic rounding.
    Raises ValueError for settings that contradict each other or do not fit a parameter.
    """
    weights = weights or Weights()
    built = _plain(optimizer, learning_rate(optimizer, schedule), specs)
    if weights.dtype != "float32":
        built = rounded(built, weights, seed)
    return built if weights.ema_decay is None else with_average(built, weights.ema_decay)


def _plain(optimizer: Optimizer, rate: schedules.Curve, specs: Any) -> optax.GradientTransformation:
    if isinstance(optimizer, Adafactor):
        return adafactor(optimizer, rate, specs)
    if isinstance(optimizer, ScheduleFree):
        return schedule_free(optimizer, rate, specs)
    return chain(optimizer, rate, specs)
