"""T5X's Adafactor slots as our optimizer keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored
from spanloom.conversion.t5x_places import Layout, Place, places
from spanloom.model.params import ParamSpec
from spanloom.optim.adafactor import SLOTS
from spanloom.optim.factoring import STANDARD_RULES, by_rules
from spanloom.settings.model import Model

_UNUSED = (1,)  # T5X fills slots that a parameter does not use with one zero
_MIN_FACTORED = 1  # of a parameter that T5X would not factor, v alone is found


@dataclass(frozen=True)
class Kept:
    """What an optimizer of T5X had in memory, found but not read: for each slot in use the arrays by our names."""

    slots: Mapping[str, Mapping[str, list[tuple[Place, tuple[str, ...], Stored]]]]
    """slot -> our name -> T5X's arrays, one or one a layer, with their axes."""
    rules: Literal["heuristic", "logical", "mixed"]
    """How factored arrays are laid out, as `Adafactor.factor_rules` has it; mixed: as it has it not."""

    @property
    def momentum(self) -> bool:
        """Whether there is momentum."""
        return bool(self.slots["m"])

    @property
    def factored(self) -> bool:
        """Whether any second moments are kept as rows and columns."""
        return bool(self.slots["v_row"])

    def describe(self) -> str:
        """In words."""
        kinds = {"v_row": "rows", "v_col": "columns", "v": "unfactored second moments", "m": "momentum"}
        used = [f"{slot} ({kinds[slot]}) of {len(names)}" for slot, names in self.slots.items() if names]
        return f"Adafactor: {', '.join(used)} parameters; factor rules {self.rules}"


def kept_slots(model: Model, layout: Layout, slots: Mapping[str, Stored], path: Path) -> Kept | None:
    """The slots of an Adafactor of T5X; None where the checkpoint has weights alone.

    Each is held against the parameter that it belongs to. Raises ConversionError, naming the array, where one is
    missing, left over or of another shape, as those of another optimizer are.
    """
    if not slots:
        return None
    found: dict[str, dict[str, Any]] = {slot: {} for slot in SLOTS}
    left = set(slots)
    for place in places(model, layout):
        own = {slot: slots[name] for slot in SLOTS if (name := f"{place.name}/{slot}") in slots}
        left -= {f"{place.name}/{slot}" for slot in own}
        for slot, axes in _used(place, own, path).items():
            found[slot].setdefault(place.ours, []).append((place, axes, own[slot]))
    if left:
        raise ConversionError(path, f"holds state/param_states/{min(left)}, which is no slot of Adafactor")
    _refuse_uneven(found, path)
    unscanned: Literal["heuristic", "mixed"] = "mixed" if layout.heads_apart else "heuristic"
    return Kept(found, "logical" if layout.scanned else unscanned)


def _used(place: Place, own: Mapping[str, Stored], path: Path) -> dict[str, tuple[str, ...]]:
    """The slots that a parameter uses, and the axes of each."""
    allowed = {"m": (place.shape, place.axes), "v": (place.shape, place.axes)}
    how = by_rules(ParamSpec(place.shape, place.axes, None), _MIN_FACTORED, place.name, STANDARD_RULES)  # type: ignore[arg-type]
    if how.factored:
        allowed |= {"v_row": _without(place, how.columns), "v_col": _without(place, how.rows)}
    used = {}
    for slot, array in own.items():
        shape, axes = allowed.get(slot, (_UNUSED, ()))
        if array.shape == shape and axes:
            used[slot] = axes
        elif array.shape != _UNUSED:
            raise ConversionError(
                array.file,
                f"state/param_states/{place.name}/{slot} has shape {array.shape}; T5X's Adafactor has {shape}",
            )
    if not ({"v"} <= used.keys()) != ({"v_row", "v_col"} <= used.keys()):
        raise ConversionError(path, f"has no second moments of {place.name}, or both forms of them")
    return used


def _without(place: Place, axes: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    left = [axis for axis in range(len(place.shape)) if axis not in axes]
    return tuple(place.shape[axis] for axis in left), tuple(place.axes[axis] for axis in left)


def _refuse_uneven(found: Mapping[str, Mapping[str, list[Any]]], path: Path) -> None:
    """A slot has each of a parameter's layers, or none."""
    layers: dict[str, int] = {}
    for slot, names in found.items():
        for ours, parts in names.items():
            if slot != "m" and layers.setdefault(ours, len(parts)) != len(parts):
                raise ConversionError(path, f"has {slot} for some layers of {ours} only")
            layers.setdefault(ours, len(parts))
    if found["m"] and any(len(found["m"].get(ours, ())) != count for ours, count in layers.items()):
        raise ConversionError(path, "has momentum for some of its parameters only")
