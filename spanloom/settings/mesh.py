"""How a run's arrays are divided among devices."""

from dataclasses import dataclass
from typing import Literal

Extent = int | Literal["auto"]

AXES = ("replica", "data", "fsdp", "tensor")
"""Axes of the mesh, from the slowest network to the fastest."""
BATCH_AXES = ("replica", "data", "fsdp")
"""Axes along which a batch is divided."""


@dataclass(frozen=True)
class Mesh:
    """Devices as a grid of replica x data x fsdp x tensor. May change on resume: it decides nothing but rounding."""

    replica: Extent = 1
    """Copies of the whole grid, such as slices of TPUs joined by a slow network; each has a share of the batch."""
    data: Extent = "auto"
    """Devices that have a share of the batch each and copies of the weights. auto: all that the others leave. Each
    updates a part of the weights for all, and keeps that part of gradients and moments (ZeRO-2)."""
    fsdp: Extent = 1
    """Devices that have a share of the batch each and keep a share of every weight and of the optimizer's state
    (fully sharded data parallelism, ZeRO-3)."""
    tensor: Extent = 1
    """Devices that divide heads, feed-forward layers and the vocabulary (Megatron), for models that one cannot hold."""
    rules: Literal["t5x_a1_p1", "t5x_a1_p2", "t5x_a2_p1", "t5x_a2_p2"] = "t5x_a1_p2"
    """Which axes of arrays are divided: T5X's standard rules for 1 or 2 dimensions of activations (a) and parameters
    (p). p2: weights are divided along fsdp as well; a2: activations also along tensor."""
    more_rules: tuple[str, ...] = ()
    """Rules that come before those, as relpos_buckets=tensor or vocab= (not divided); the first that fits holds."""
