"""Learning-rate schedules as functions of the step, T5X's factor strings among them."""

from collections.abc import Callable
from math import pi
from typing import assert_never

import jax
import jax.numpy as jnp

from spanloom.settings.optimizer import (
    WSD,
    Constant,
    Cosine,
    Decaying,
    Factors,
    Linear,
    Rsqrt,
    Schedule,
    factor_problems,
)

Step = jax.Array | int
Curve = Callable[[Step], jax.Array]
"""From the step about to be taken (int32, 0 first; a scalar or an array) to float32."""


def learning_rate(schedule: Schedule, base: float) -> Curve:
    """The learning rate as a function of the step: base times the schedule's shape.

    Of `Factors` only the factors `constant` and `linear_decay` carry the base, as in T5X.
    Raises ValueError for settings that make no schedule, saying which and what to set instead.
    """
    match schedule:
        case Factors():
            return from_factors(schedule, base)
        case Rsqrt():
            shape = _rsqrt(schedule)
        case Constant():
            shape = _warmup(schedule.warmup_steps)
        case Linear() | Cosine() | WSD():
            shape = _warmup_then_decay(schedule)
        case _:
            assert_never(schedule)
    return lambda step: jnp.float32(base) * shape(step)


def _rsqrt(schedule: Rsqrt) -> Curve:
    if schedule.warmup_steps < 1:
        raise ValueError(
            f"Rsqrt needs warmup_steps of at least 1, not {schedule.warmup_steps}: 1/sqrt(step) is infinite at step 0"
        )

    def shape(step: Step) -> jax.Array:
        step = jnp.maximum(0, jnp.asarray(step) - schedule.step_offset)
        return 1 / jnp.sqrt(jnp.maximum(step, schedule.warmup_steps).astype(jnp.float32))

    return shape


def _warmup(steps: int) -> Curve:
    """From 0 at step 0 to 1 at `steps`, then 1; no warm-up for 0 steps."""
    if steps < 0:
        raise ValueError(f"warmup_steps must be 0 or more, not {steps}")
    return lambda step: jnp.minimum(1.0, _float(step) / steps) if steps else jnp.ones_like(_float(step))


def _warmup_then_decay(schedule: Decaying) -> Curve:
    name, end = type(schedule).__name__, schedule.decay_steps
    if end is None:
        raise ValueError(
            f"{name}.decay_steps is unset and the schedule does not know where to end; "
            "call run.resolve(), which takes the run's steps, or set it"
        )
    if end <= schedule.warmup_steps:
        raise ValueError(
            f"{name} reaches its end at step {end}, but warms up until step {schedule.warmup_steps}; "
            "lower warmup_steps or raise decay_steps (unset: the run's steps)"
        )
    begin = _decay_start(schedule, end)
    warmup, fall = _warmup(schedule.warmup_steps), _FALLS[type(schedule)]

    def shape(step: Step) -> jax.Array:
        done = jnp.clip((_float(step) - begin) / (end - begin), 0.0, 1.0)
        return warmup(step) * (schedule.end_factor + (1 - schedule.end_factor) * fall(done))

    return shape


def _decay_start(schedule: Decaying, end: int) -> float:
    if not isinstance(schedule, WSD):
        return schedule.warmup_steps
    if not 0 < schedule.decay_share <= 1:
        raise ValueError(f"WSD.decay_share must be above 0 and at most 1, not {schedule.decay_share}")
    return max(schedule.warmup_steps, end * (1 - schedule.decay_share))


_FALLS: dict[type, Callable[[jax.Array], jax.Array]] = {
    Linear: lambda done: 1 - done,
    Cosine: lambda done: (1 + jnp.cos(pi * done)) / 2,
    WSD: lambda done: 1 - jnp.sqrt(done),
}
"""From the share of the decay that is done to what is left of the rate."""


def from_factors(settings: Factors, base: float) -> Curve:
    """T5X's `create_learning_rate_scheduler`: the product of named factors, at least min_learning_rate.

    Raises ValueError for an unknown factor name, with the nearest known one, and for a warm-up or period of 0 steps
    in a factor that divides by it.
    """
    for problem in factor_problems(settings):
        raise ValueError(problem)
    names = [name.strip() for name in settings.factors.split("*")]

    def rate(step: Step) -> jax.Array:
        step = jnp.maximum(0, jnp.asarray(step) - settings.step_offset)
        product = jnp.ones_like(_float(step))
        for name in names:
            product = product * _FACTORS[name](step, settings, base)
        return jnp.maximum(product, settings.min_learning_rate)

    return rate


def _linear_decay(step: jax.Array, settings: Factors, base: float) -> jax.Array:
    up = _float(step) / settings.warmup_steps
    return base * jnp.minimum(up, 1 + settings.decay_factor * _float(settings.warmup_steps - step))


def _cosine_decay(step: jax.Array, settings: Factors, base: float) -> jax.Array:
    """Half a cosine a cycle. The phase loses digits in float32 late in a run of many cycles, as T5X's does."""
    phase = _float(jnp.maximum(0, step - settings.warmup_steps)) / settings.steps_per_cycle % 1
    return (1 + jnp.cos(pi * phase)) / 2


_FACTORS: dict[str, Callable[[jax.Array, Factors, float], jax.Array]] = {
    "constant": lambda step, settings, base: jnp.float32(base),
    "linear_warmup": lambda step, settings, base: jnp.minimum(1.0, _float(step) / settings.warmup_steps),
    "linear_decay": _linear_decay,
    "rsqrt_decay": lambda step, settings, base: 1 / jnp.sqrt(_float(jnp.maximum(step, settings.warmup_steps))),
    "rsqrt_normalized_decay": lambda step, settings, base: jnp.sqrt(
        settings.warmup_steps / _float(jnp.maximum(step, settings.warmup_steps))
    ),
    "decay_every": lambda step, settings, base: settings.decay_factor ** _float(step // settings.steps_per_decay),
    "cosine_decay": _cosine_decay,
}
"""T5X's factors: from the step (int32, offset subtracted), the settings and the base rate to float32."""


def _float(step: Step) -> jax.Array:
    return jnp.asarray(step).astype(jnp.float32)
