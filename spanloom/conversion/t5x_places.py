"""Where each of T5X's arrays goes in our stacked parameters, in any of its layouts (see `t5x_names`), by axis names.

T5X's own sizes follow from ours: so every array is held against the architecture before a number of it is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.conversion.t5x_names import their_layer, their_scanned
from spanloom.model.params import ParamSpec, declare, flatten
from spanloom.settings.model import Model

LAYERS = "layers"
_APART = ("heads", "kv")


@dataclass(frozen=True)
class Layout:
    """How T5X laid out a model."""

    scanned: bool = False
    """All layers of a stack in one array, on axis 1."""
    heads_apart: bool = False
    """Attention's matrices with one axis for the heads and one for a head's width."""


@dataclass(frozen=True)
class Place:
    """One of T5X's arrays."""

    name: str
    """T5X's name."""
    shape: tuple[int, ...]
    """T5X's shape."""
    axes: tuple[str, ...]
    """Name of each axis in T5X's order."""
    ours: str
    """Our flat name, layers stacked."""
    layer: int | None
    """Row of our stacked array; None where all of it is this array."""


def places(model: Model, layout: Layout) -> list[Place]:
    """Every array of a model as T5X has it in this layout."""
    result = []
    for ours, spec in flatten(declare(model)).items():
        shape, axes = _heads(model, spec) if layout.heads_apart else (spec.shape, spec.axes)
        if LAYERS not in axes:
            result.append(Place(ours, shape, axes, ours, None))
        elif layout.scanned:
            order = (1, 0, *range(2, len(shape)))
            moved = tuple(shape[axis] for axis in order), tuple(axes[axis] for axis in order)
            result.append(Place(their_scanned(ours), *moved, ours, None))
        else:
            result += [
                Place(their_layer(ours, layer), shape[1:], axes[1:], ours, layer) for layer in range(spec.shape[0])
            ]
    return result


def joined(axes: Sequence[str]) -> tuple[str, ...]:
    """Names of axes with those of the heads joined, as ours are."""
    names = [axis for axis in axes if axis != _APART[1]]
    return tuple("joined_kv" if axis == _APART[0] and _APART[1] in axes else axis for axis in names)


def theirs_of(place: "Place", axes: Sequence[str]) -> tuple[str, ...]:
    """The axes that T5X has of an array which keeps some of ours of a parameter, in T5X's order."""
    own = set(axes) | ({*_APART} if "joined_kv" in axes else set())
    return tuple(axis for axis in place.axes if axis in own)


def as_theirs(array: np.ndarray, axes: Sequence[str], theirs: Sequence[str], model: Model) -> np.ndarray:
    """The inverse of `as_ours`: an array of ours, whose axes are named, with T5X's (`theirs`)."""
    names = list(axes)
    if "joined_kv" in names and _APART[0] in theirs:
        at = names.index("joined_kv")
        array = array.reshape(*array.shape[:at], model.num_heads, model.d_kv, *array.shape[at + 1 :])
        names[at : at + 1] = _APART
    if LAYERS in names:
        array = np.moveaxis(array, names.index(LAYERS), list(theirs).index(LAYERS))
    return array


def as_ours(array: np.ndarray, axes: Sequence[str]) -> np.ndarray:
    """One of T5X's arrays, whose axes are named, with layers first and heads joined: a part of ours, or all of it."""
    names = list(axes)
    if LAYERS in names:
        array = np.moveaxis(array, names.index(LAYERS), 0)
        names.remove(LAYERS)
        names.insert(0, LAYERS)
    if _APART[0] in names and _APART[1] in names:
        first = names.index(_APART[0])
        array = array.reshape(*array.shape[:first], -1, *array.shape[first + 2 :])
    return array


def _heads(model: Model, spec: ParamSpec) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if "joined_kv" not in spec.axes:
        return spec.shape, spec.axes
    joined = spec.axes.index("joined_kv")
    shape = (*spec.shape[:joined], model.num_heads, model.d_kv, *spec.shape[joined + 1 :])
    return shape, (*spec.axes[:joined], *_APART, *spec.axes[joined + 1 :])
