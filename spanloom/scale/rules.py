"""Logical axis rules: from the names of an array's axes to the axes of the mesh that it is divided along.

The four standard sets are T5X's (t5x/partitioning.py, standard_logical_axis_rules; after Lepikhin et al. 2021, GShard,
and Xu et al. 2021, GSPMD). T5X's mesh axis "data" is here replica, data and fsdp for batches and fsdp for weights, and
its "model" is tensor.
"""

import math
from collections.abc import Mapping, Sequence

from jax.sharding import PartitionSpec

from spanloom.optim.factoring import LAYER_AXES
from spanloom.settings.mesh import AXES, BATCH_AXES, Mesh
from spanloom.settings.nearest import did_you_mean

Target = str | tuple[str, ...] | None
Rule = tuple[str, Target]
"""The name of an array's axis, and what it is divided along; None: nothing."""

_UNDIVIDED = ("relpos_buckets", "abspos_buckets", "length", "layers", "stack", "mlp_activations")
LOGICAL = ("batch", "vocab", "embed", "mlp", "heads", "kv", "joined_kv", *_UNDIVIDED)
"""Names of axes that rules may be about."""


def rules_of(settings: Mesh) -> tuple[Rule, ...]:
    """The rules of the settings' own, then those that they name. Raises ValueError for a rule that is none."""
    activations, parameters = (int(part[1]) for part in settings.rules.split("_")[1:])
    return (*(_parse(rule) for rule in settings.more_rules), *standard_rules(activations, parameters))


def standard_rules(activation_dims: int, parameter_dims: int, additional: Sequence[Rule] = ()) -> tuple[Rule, ...]:
    """T5X's rules for 1 or 2 dimensions of activations and of parameters, and its `additional_rules` after them."""
    embed: list[Target] = []
    if activation_dims == 2:
        embed.append("tensor")
    if parameter_dims == 2:
        embed.append("fsdp")
    divided = ("vocab", "mlp", "heads", "joined_kv")
    return (
        ("batch", BATCH_AXES),
        *((name, "tensor") for name in divided),
        *(("embed", target) for target in embed or [None]),
        ("kv", None),
        *((name, None) for name in _UNDIVIDED),
        *additional,
    )


def partition_spec(
    rules: Sequence[Rule],
    axes: Sequence[str],
    shape: Sequence[int] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> PartitionSpec:
    """How an array whose axes have these names is divided.

    Rules are taken in their order: one holds if its axis of the array has none yet and the array is not divided along
    its axis of the mesh already. With `shape` and the mesh's `sizes`, an axis that cannot be divided evenly is not
    divided. Raises ValueError for a name that no rule is about.
    """
    targets: list[Target] = [None] * len(axes)
    decided: set[str] = set()
    used: set[str] = set()
    for name, target in rules:
        if name not in axes or name in decided:
            continue
        wanted = {target} if isinstance(target, str) else set(target or ())
        if not wanted & used:
            targets[axes.index(name)] = target
            decided.add(name)
            used |= wanted
    if unknown := [name for name in axes if name not in {known for known, _ in rules}]:
        raise ValueError(f"no rule is about the axis {unknown[0]!r} of {tuple(axes)}")
    if shape is not None and sizes is not None:
        targets = [
            target if _divides(target, size, sizes) else None for target, size in zip(targets, shape, strict=True)
        ]
    return PartitionSpec(*targets)


def update_spec(
    stored: PartitionSpec, axes: Sequence[str], shape: Sequence[int], sizes: Mapping[str, int]
) -> PartitionSpec:
    """How the gradient of a parameter that is `stored` so is divided, and what an optimizer keeps for its numbers.

    As the parameter is, and a matrix along data too, by rows if these divide evenly: devices that keep the same weights
    add up, and update, a part each (Xu et al. 2020, arXiv:2004.13336; ZeRO, Rajbhandari et al. 2020). Parts of rows
    would be gathered in pieces. A vector is not worth a message.
    """
    along = [_names(target) for target in stored]
    layer = [i for i, axis in enumerate(axes) if axis not in LAYER_AXES]
    if len(layer) < 2 or any("data" in names for names in along):
        return stored
    for i in layer:
        both = (*along[i], "data")
        if _divides(both, shape[i], sizes):
            return PartitionSpec(*stored[:i], both, *stored[i + 1 :])
    return stored


def without(spec: PartitionSpec, axis: str) -> PartitionSpec:
    """The spec with nothing divided along one axis of the mesh."""

    def rest(target: Target) -> Target:
        if isinstance(target, tuple):
            return tuple(one for one in target if one != axis) or None
        return None if target == axis else target

    return PartitionSpec(*(rest(target) for target in spec))


def _divides(target: Target, size: int, sizes: Mapping[str, int]) -> bool:
    return size % math.prod(sizes[axis] for axis in _names(target)) == 0


def _names(target: Target) -> tuple[str, ...]:
    return (target,) if isinstance(target, str) else target or ()


def _parse(text: str) -> Rule:
    """'embed=tensor' or 'vocab=' as a rule."""
    name, equals, target = (part.strip() for part in text.partition("="))
    if not equals:
        raise ValueError(f"mesh.more_rules: {text!r} is no rule; write NAME=AXIS, or NAME= for what is not divided")
    if name not in LOGICAL:
        raise ValueError(f"mesh.more_rules: {text!r} is about an unknown axis{did_you_mean(name, LOGICAL)}")
    if target and target not in AXES:
        raise ValueError(f"mesh.more_rules: {text!r} names no axis of the mesh{did_you_mean(target, AXES)}")
    if name == "batch":
        raise ValueError(
            f"mesh.more_rules: {text!r} cannot be chosen: every device reads the part of a batch that replica, data "
            "and fsdp make of it; set these (--mesh.data 4)"
        )
    return name, target or None
