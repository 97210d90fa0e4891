"""Numbers that no setting may have: not finite, too large or small for the device, signs and shares out of range."""

import dataclasses
import math
import struct
from collections.abc import Iterator
from typing import Any

from spanloom.settings.run import Run

LARGEST_INTEGER = 2**31 - 1
"""Steps, sizes and lengths are int32 on the device."""
LARGEST_SEED = 2**32 - 1
"""JAX keys take 32 bits of a seed: a larger one would draw the same weights as a smaller one."""

LEAST_FLOAT = 2.0**-126
"""Smaller numbers are 0 on the device, which computes in float32."""

_ABOVE_0 = (
    "model.norm_epsilon",
    "optimizer.learning_rate",
    "optimizer.decay_rate",
    "optimizer.clipping_threshold",
    "optimizer.global_norm_clip",
    "optimizer.max_parameter_scale",
    "optimizer.min_scale",
    "optimizer.update_rms",
    "optimizer.newton_schulz_steps",
)
_NOT_BELOW_0 = (
    "loss.z_loss",
    "optimizer.weight_decay",
    "optimizer.epsilon",
    "optimizer.epsilon1",
    "optimizer.epsilon2",
    "optimizer.min_dim_size_to_factor",
    "optimizer.weight_power",
    "log.parameters",
    "schedule.min_learning_rate",
    "stopping.min_improvement",
)
_AT_MOST = {"optimizer.newton_schulz_steps": 20}
"""What is compiled once for each: five do, and thousands would compile for hours."""
_BELOW_1 = ("optimizer.beta1", "optimizer.beta2", "optimizer.momentum", "weights.ema_decay")


def number_problems(run: Run) -> Iterator[str]:
    """What is wrong with single numbers of a run, whatever the others are: field, value and what it must be.

    A number is looked at once: what is not finite or too large is not also said to be out of range.
    """
    for name, value in _numbers(run, ""):
        largest = LARGEST_SEED if name == "seed" else LARGEST_INTEGER
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{name} is {value}: must be a finite number"
        elif isinstance(value, int) and abs(value) > largest:
            yield f"{name} is {value}: must be at most {largest}"
        elif isinstance(value, float) and not name.startswith("task.") and not _fits(value):
            yield f"{name} is {value}: must be 0 or from {LEAST_FLOAT:.1e} to 3.4e+38 in size, as float32 holds it"
        elif name in _ABOVE_0 and value <= 0:
            yield f"{name} is {value}: must be above 0{' (None: no clipping)' if 'clip' in name else ''}"
        elif name in _NOT_BELOW_0 and value < 0:
            yield f"{name} is {value}: must be 0 or more"
        elif value > _AT_MOST.get(name, math.inf):
            yield f"{name} is {value}: must be at most {_AT_MOST[name]}"
        elif name in _BELOW_1 and not 0 <= _float32(value) < 1:
            yield f"{name} is {value}: must be at least 0 and below 1 (in float32: at most 0.9999999)"


def _fits(value: float) -> bool:
    return value == 0 or LEAST_FLOAT <= abs(value) < 2.0**128 - 2.0**103


def _float32(value: float) -> float:
    number: float = struct.unpack("f", struct.pack("f", value))[0]
    return number


def _numbers(settings: Any, prefix: str) -> Iterator[tuple[str, int | float]]:
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            yield from _numbers(value, f"{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
