"""T5X's optimizers and learning-rate schedules as Spanloom's."""

from dataclasses import fields
from typing import Any

from spanloom.migration.draft import MigrationError
from spanloom.migration.fates import Bindings
from spanloom.migration.gin_statements import Reference
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Factors, Lion, Optimizer, Rsqrt, Schedule

_SCHEDULE = "create_learning_rate_scheduler"
_ADAFACTOR = {
    "decay_rate": "decay_rate",
    "step_offset": "step_offset",
    "clipping_threshold": "clipping_threshold",
    "beta1": "beta1",
    "factored": "factored",
    "min_dim_size_to_factor": "min_dim_size_to_factor",
    "epsilon1": "epsilon1",
    "epsilon2": "epsilon2",
    "max_parameter_scale": "max_parameter_scale",
    "weight_decay_rate": "weight_decay",
    "weight_decay_rate_lr_exponent": "weight_decay_lr_exponent",
    "global_norm_clip_threshold": "global_norm_clip",
    "skip_nan_updates": "skip_nan_updates",
}
"""T5X's name -> ours; the defaults are the same."""
_OF_OPTAX: dict[str, type[AdamW] | type[Lion]] = {"adamw": AdamW, "adam": AdamW, "lion": Lion}
_OPTAX = {"b1": "beta1", "b2": "beta2", "eps": "epsilon", "weight_decay": "weight_decay"}


def optimizer_of(found: Bindings, owner: str, training: bool) -> Optimizer:
    """The optimizer of a model. Raises MigrationError for one that Spanloom does not have."""
    reference = found.reference(owner, "optimizer_def")
    if reference is None or reference.short == "Adafactor":
        return _adafactor(found, "Adafactor" if reference is None else reference.selector, base_rate(found))
    if reference.short not in _OF_OPTAX:
        if not training:
            return Adafactor(learning_rate=base_rate(found))
        raise MigrationError(
            f"the optimizer is {reference!r}; Spanloom has Adafactor, and of optax's adamw, adam and lion (and Muon, "
            "AdamW with RMS-scaled steps and schedule-free AdamW of its own)"
        )
    return _optax(found, reference, _OF_OPTAX[reference.short])


def _adafactor(found: Bindings, name: str, rate: float) -> Adafactor:
    values: dict[str, Any] = {}
    for theirs, ours in _ADAFACTOR.items():
        if found.find(name, theirs) is not None:
            values[ours] = found.take(name, theirs, getattr(Adafactor(), ours))
    scale = found.take(name, "multiply_by_parameter_scale", True)
    if not isinstance(scale, bool):
        found.note("lost", "scaled by the RMS of every parameter, or of none", name, "multiply_by_parameter_scale")
        scale = True
    # with scanned layers T5X factors by axis names, else by size
    rules = "logical" if found.take("T5Config", "scan_layers", False) else "heuristic"
    return Adafactor(learning_rate=rate, multiply_by_parameter_scale=scale, factor_rules=rules, **values)  # type: ignore[arg-type]


def _optax(found: Bindings, reference: Reference, kind: type[AdamW] | type[Lion]) -> Optimizer:
    """optax takes its learning rate from its own argument, a number or a schedule, and not from the trainer."""
    name = reference.selector
    values: dict[str, Any] = {"global_norm_clip": None}
    if kind is AdamW and reference.short == "adamw":
        values["weight_decay"] = 1e-4
    if kind is Lion:
        values |= {"weight_decay": 1e-3}
    for theirs, ours in _OPTAX.items():
        if hasattr(kind(), ours) and found.find(name, theirs) is not None:
            values[ours] = found.take(name, theirs)
    rate = found.take(name, "learning_rate")
    if not isinstance(rate, int | float):
        why = "a schedule of optax; a constant rate stands in: give --optimizer.learning-rate and --schedule"
        found.note("lost", why, name, "learning_rate")
        rate = kind().learning_rate
    return kind(learning_rate=float(rate), **values)


def base_rate(found: Bindings) -> float:
    """The base learning rate: where the trainer has T5X's schedule, 0.5 unless it is bound."""
    schedule = found.reference("Trainer", "learning_rate_fn")
    scheduled = schedule is not None and schedule.short == _SCHEDULE
    return float(found.take(_SCHEDULE, "base_learning_rate", 0.5 if scheduled else 1.0))


def schedule_of(found: Bindings, owner: str) -> Schedule:
    """The schedule of a model: the two that T5 is trained with under their own names, any other as T5X's factors.

    Constant for optimizers of optax, which T5X does not give its schedule to.
    """
    other = found.reference("Trainer", "learning_rate_fn")
    optimizer = found.reference(owner, "optimizer_def")
    if optimizer is not None and optimizer.short in _OF_OPTAX:
        why = "T5X's optax optimizers do not read the trainer's schedule; they have a rate of their own"
        found.note("changed", why, "Trainer", "learning_rate_fn")
        for name in ("base_learning_rate", *(one.name for one in fields(Factors))):
            found.note("needless", why, _SCHEDULE, name)
        return Constant()
    if other is None:
        return Rsqrt()
    if other.short != _SCHEDULE:
        why = "a schedule of your own; --schedule has rsqrt, constant, linear, cosine, wsd and T5X's factors"
        found.note("lost", why, "Trainer", "learning_rate_fn")
        return Constant()
    names = [one.name for one in fields(Factors)]
    values = {name: found.take(_SCHEDULE, name, getattr(Factors(), name)) for name in names}
    used = [one.strip() for one in str(values["factors"]).split("*")]
    plain = values["step_offset"] == 0 and values["min_learning_rate"] == Factors().min_learning_rate
    if plain and used == ["constant"]:
        found.note("needless", "a constant rate has no warm-up in T5X either", _SCHEDULE, "warmup_steps")
        return Constant()
    if plain and sorted(used) == ["constant", "rsqrt_decay"]:
        return Rsqrt(warmup_steps=values["warmup_steps"])
    return Factors(**values)
