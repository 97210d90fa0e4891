"""What differs between the settings that a run has and those it is asked to go on with.

A field is either free (steps, logging, evaluation, checkpoints, names and places) or decides the result. A free one may
change on resume; of the others each must be accepted by name, or the change goes into a new directory. Some of these
cannot be accepted: the arrays of a checkpoint would not fit, or its place in the data would mean nothing.
"""

import dataclasses
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from spanloom.settings.function import Function
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Task

_COMPUTED = ("mesh", "model.remat", "model.attention")
"""How the same numbers are computed, up to rounding."""

FREE = (*_COMPUTED, "steps", "loading", "log", "eval", "checkpoint", "stopping", "after", "out", "name", "model.name")
"""Fields (with all below them) that may change on resume."""

MEASURES = ("task.metrics", "task.postprocess")
"""Code that only looks at what was learnt, and may change on resume, too."""

WEIGHTS = (
    "model.vocab_size",
    "model.d_model",
    "model.d_ff",
    "model.num_heads",
    "model.d_kv",
    "model.num_encoder_layers",
    "model.num_decoder_layers",
    "model.tie_embeddings",
    "model.per_layer_position_bias",
    "model.relative_position_buckets",
)
"""Fields that decide the shapes of the weights."""

OPTIMIZER_STATE = (
    "optimizer.factored",
    "optimizer.min_dim_size_to_factor",
    "optimizer.factor_rules",
    "weights.dtype",
    "weights.rounding",
)
"""Fields that decide the shapes of the optimizer's state."""

PLACE = ("packing",)
"""Fields (with all below them) that decide what a checkpoint's place in the data means."""

DEPENDS = {
    "optimizer": lambda old, new: True,  # another kind
    "optimizer.beta1": lambda old, new: (old is None) != (new is None),  # Adafactor keeps momentum, or none
    "weights.ema_decay": lambda old, new: (old is None) != (new is None),  # an average is kept, or none
    "model.activations": lambda old, new: len(old) != len(new),  # gated or not
}
"""Fields that decide shapes with some values, and with others must be accepted by name: whether they do."""


class ChangedSettingsError(SettingsError):
    """Settings that decide the result differ from those the run has."""


@dataclass(frozen=True)
class Change:
    """One field that differs."""

    field: str
    """Dotted name."""
    old: Any
    """Value the run has; a whole dataclass where the kind changed."""
    new: Any
    """Value asked for."""

    @property
    def free(self) -> bool:
        """Whether it may change on resume."""
        return within(self.field, (*FREE, *MEASURES))

    @property
    def shapes(self) -> bool:
        """Whether weights or the optimizer's state would have other shapes, so that no checkpoint can go on with it."""
        depends = DEPENDS.get(self.field)
        return self.field in (*WEIGHTS, *OPTIMIZER_STATE) or (depends is not None and depends(self.old, self.new))

    @property
    def place(self) -> bool:
        """Whether a checkpoint's place in the data would mean nothing, so that none can go on with it."""
        return within(self.field, PLACE)

    @property
    def shown(self) -> tuple[str, str]:
        """Both values in a message; of parts that have names, nothing, and what differs between them."""
        return _shown(self)

    def __str__(self) -> str:
        return f"{self.field}: {_difference(self, ' -> ')}"


def changes(old: Run, new: Run) -> list[Change]:
    """Every field in which two runs differ, free or not, in the order of the settings.

    Where a part is of another kind (another optimizer), that part is one change.
    """
    return changes_between(old, new)


def changes_between(old: Any, new: Any) -> list[Change]:
    """Likewise of two parts of the settings that are of one kind, such as two tasks."""
    return list(_walk(old, new, ""))


def refuse(found: Iterable[Change], accepted: Collection[str] = ()) -> None:
    """Raise ChangedSettingsError, with a diff and the ways on, for changes that are neither free nor accepted by name.

    `accepted` holds dotted fields; one that stands for a group (`task.source`) accepts all below it.
    """
    found = list(found)
    deciding = [c for c in found if not c.free]
    shapes = [c for c in deciding if c.shapes]
    open_ = [c for c in deciding if not c.shapes and not within(c.field, accepted)]
    if shapes:
        raise ChangedSettingsError(_misfit(shapes))
    if places := [c for c in deciding if c.place]:
        raise ChangedSettingsError(
            f"a checkpoint's place in the data is that of its rows, which these settings would change:\n{_diff(places)}"
            "\nNo checkpoint can go on with that: take the settings back, or start a new run from the weights alone: "
            "--start THIS_RUN --out NEW_DIR."
        )
    if open_:
        names = ",".join(c.field for c in open_)
        raise ChangedSettingsError(
            "settings that decide the result differ from those this run has now:\n"
            + _diff(open_)
            + "\nTake them back; or go on from the last checkpoint in a new directory with --fork NEW_DIR; "
            + f"or change this run from here on with --accept-change {names}"
            + _derived(found)
        )


def _derived(found: Iterable[Change]) -> str:
    """The way on where the schedule was to end with the steps, and only these were asked for."""
    new = {c.field: c.new for c in found}
    if "steps" not in new or new["steps"] != new.get("schedule.decay_steps"):
        return ""
    return (
        "\nschedule.decay_steps follows from steps where nothing sets it. To train on with the schedule as it is, if "
        f"it does not end at 0, name the run instead of its recipe: spanloom train RUN_DIR --steps {new['steps']}"
    )


def _misfit(shapes: list[Change]) -> str:
    what, way = "optimizer's moments", "from the weights alone: --start THIS_RUN --out NEW_DIR"
    if any(c.field.startswith("model.") for c in shapes):
        what, way = "weights", "with another --out"
    return (
        f"the {what} of this run have other shapes than these settings ask for:\n{_diff(shapes)}\n"
        f"No checkpoint can go on with that: take the settings back, or start a new run {way}."
    )


def check_accepted(accepted: Iterable[str], run: Run) -> None:
    """Raise SettingsError for an accepted name that is no field of the run, naming the nearest one."""
    known = list(fields_of(run))
    for name in accepted:
        if normal(name) not in known:
            raise SettingsError(f"--accept-change {name}: no such setting{did_you_mean(normal(name), known)}")


def fields_of(settings: Any, prefix: str = "") -> Iterable[str]:
    """Dotted names of all fields of a settings dataclass, groups included."""
    for f in dataclasses.fields(settings):
        yield prefix + f.name
        value = getattr(settings, f.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{prefix}{f.name}.")


def normal(name: str) -> str:
    """A dotted field name with `_` for `-` and without leading dashes."""
    return name.strip().lstrip("-").replace("-", "_")


def _walk(old: Any, new: Any, prefix: str) -> Iterable[Change]:
    for f in dataclasses.fields(old):
        a, b = getattr(old, f.name), getattr(new, f.name)
        if dataclasses.is_dataclass(a) and type(a) is type(b):
            yield from _walk(a, b, f"{prefix}{f.name}.")
        elif (a != b and _anywhere(a) != _anywhere(b)) or (isinstance(a, bool) != isinstance(b, bool)):
            yield Change(prefix + f.name, a, b)


def _anywhere(value: Any) -> Any:
    """The value with functions of files as these are called, wherever they lie: what is in them is compared by whoever
    reads the data.
    """
    if isinstance(value, Function) and value.is_of_file:
        return replace(value, name=f"{os.path.basename(value.place)}:{value.qualname}")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [_anywhere(getattr(value, f.name)) for f in dataclasses.fields(value)]
    return tuple(map(_anywhere, value)) if isinstance(value, tuple) else value


def within(field: str, groups: Iterable[str]) -> bool:
    """Whether a dotted field is one of `groups`, or below one of them."""
    return any(field == normal(group) or field.startswith(normal(group) + ".") for group in groups)


def _diff(found: Iterable[Change]) -> str:
    found = list(found)
    width = max(len(c.field) for c in found)
    return "\n".join(f"  {c.field:<{width}}  {_difference(c)}" for c in found)


def _difference(change: Change, arrow: str = "  ->  ") -> str:
    old, new = change.shown
    return f"{old}{arrow}{new}" if old else new


def _shown(change: Change) -> tuple[str, str]:
    old, new = change.old, change.new
    if isinstance(old, tuple) and isinstance(new, tuple) and {type(one) for one in (*old, *new)} <= {Weighted, Task}:
        return "", "; ".join(_parts_differ(old, new))
    shown = _show(old), _show(new)
    if shown[0] == shown[1]:  # functions of the same name
        shown = _show(old, whole=True), _show(new, whole=True)
    return shown


def _parts_differ(old: tuple[Weighted | Task, ...], new: tuple[Weighted | Task, ...]) -> Iterable[str]:
    """What differs between tasks, or the parts of two mixtures, one by one: hundreds of tasks are not printed whole."""
    before, after = ({_name(part): part for part in parts} for parts in (old, new))
    for name in before:
        if name not in after:
            yield f"{name} is gone"
    for name, part in after.items():
        if name not in before:
            yield f"{name} is added" + (f" (rate {_show(part.rate)})" if isinstance(part, Weighted) else "")
        elif before[name] != part:
            yield from (f"{name}: {c.field} {_difference(c)}" for c in _walk(before[name], part, ""))
    if list(before) != list(after) and {*before} == {*after}:
        yield "the parts come in another order"


def _name(part: Weighted | Task) -> str:
    return part.part.name if isinstance(part, Weighted) else part.name


def _show(value: Any, *, whole: bool = False) -> str:
    """A value in a message; `whole`: functions with the file or module that they stand in, and all of a task."""
    if isinstance(value, Function):
        return f"{value} of {value.place}" if whole else str(value)
    if isinstance(value, Task | Mixture) and not whole:
        return f"{type(value).__name__.lower()} {value.name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = (f"{f.name} {_show(getattr(value, f.name), whole=whole)}" for f in dataclasses.fields(value))
        return f"{type(value).__name__} ({', '.join(inside)})"
    if isinstance(value, tuple):
        return f"({', '.join(_show(one, whole=whole) for one in value)})"
    return "unset" if value is None else str(value)
