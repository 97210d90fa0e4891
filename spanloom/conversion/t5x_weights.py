"""T5X's arrays, in any of its layouts, as our weights and as an optimizer's memory, none of which has been read."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from spanloom.conversion.stored import Stored, taken
from spanloom.conversion.stored_model import Memory, Slot
from spanloom.conversion.t5x_places import LAYERS, Layout, as_ours, joined, places
from spanloom.conversion.t5x_slots import Kept
from spanloom.conversion.weights import Weight
from spanloom.model.params import declare, flatten
from spanloom.settings.model import Model

_Part = tuple[tuple[str, ...], Stored, str]
"""Names of an array's axes, the array, and T5X's name of it."""


def weights_of(model: Model, layout: Layout, arrays: Mapping[str, Stored]) -> dict[str, Weight]:
    """Our weights from arrays by T5X's name, each of which has been held against the architecture."""
    found: dict[str, list[_Part]] = {}
    for place in places(model, layout):
        found.setdefault(place.ours, []).append((place.axes, arrays[place.name], place.name))
    specs = flatten(declare(model))
    return {name: _weight(specs[name].shape, specs[name].axes, parts) for name, parts in found.items()}


def memory_of(model: Model, kept: Kept, step: int) -> Memory:
    """What an Adafactor of T5X had in memory."""
    specs = flatten(declare(model))
    slots: dict[str, dict[str, Slot]] = {}
    for slot, names in kept.slots.items():
        slots[slot] = {}
        for ours, parts in sorted(names.items()):
            spec, kept_axes = specs[ours], set(joined(parts[0][1]))
            axes = tuple(axis for axis in spec.axes if axis == LAYERS or axis in kept_axes)
            shape = tuple(size for size, axis in zip(spec.shape, spec.axes, strict=True) if axis in axes)
            of_slot = [(axes_there, array, f"{place.name}/{slot}") for place, axes_there, array in parts]
            slots[slot][ours] = Slot(axes, _weight(shape, axes, of_slot))
    return Memory(step, kept.rules, slots)


def _weight(shape: tuple[int, ...], axes: Sequence[str], parts: list[_Part]) -> Weight:
    stacked = LAYERS in axes
    together = stacked and LAYERS in parts[0][0]

    def read(layer: int | None) -> np.ndarray:
        if together and layer is not None:
            names, array, _ = parts[0]
            at = names.index(LAYERS)
            return as_ours(taken(array, at, layer), (*names[:at], *names[at + 1 :]))
        names, array, _ = parts[layer or 0]
        return as_ours((array.look or array.read)(), names)

    def place(layer: int | None) -> tuple[str, Path]:
        _, array, name = parts[0 if together else layer or 0]
        return name, array.file

    kinds = {array.dtype for _, array, _ in parts}
    alone = not together or _layers_in_a_chunk(*parts[0][:2]) <= 2
    layers = shape[0] if stacked else None
    return Weight(shape, layers, kinds.pop() if len(kinds) == 1 else "float32", read, place, alone)


def _layers_in_a_chunk(names: tuple[str, ...], array: Stored) -> int:
    """1 of an array that is read where it lies."""
    if array.chunk is not None:
        return array.chunk[names.index(LAYERS)]
    return 1 if array.look is not None else array.shape[names.index(LAYERS)]
