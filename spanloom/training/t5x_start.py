"""A run that begins with a checkpoint of T5X: what of its Adafactor goes on here."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x import OpenedT5X
from spanloom.model.params import declare, flatten
from spanloom.optim.adafactor import SLOTS, AdafactorState, factoring
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor
from spanloom.settings.run import Run

_ALONE = "; or give --follow.optimizer reset, which takes the weights alone"


def as_trained_here(opened: OpenedT5X, wanted: Model) -> Model:
    """The checkpoint's model; where nothing shows its activations, with those of the run."""
    model = opened.model
    if opened.activations_known or len(model.activations) != len(wanted.activations):
        return model
    return replace(model, activations=wanted.activations)


def optimizer_problem(opened: OpenedT5X, run: Run) -> str | None:
    """What keeps the run's optimizer from going on with the state of T5X's; None if nothing does."""
    kept, settings, path = opened.kept, run.optimizer, opened.checkpoint.path
    if kept is None:
        return f"{path} holds no state of Adafactor, so none can go on from there: give --follow.optimizer reset"
    if not isinstance(settings, Adafactor):
        return f"{path} holds the state of Adafactor, and this run has {type(settings).__name__}: set Adafactor{_ALONE}"
    if run.weights.dtype != "float32" or run.weights.ema_decay is not None:
        return (
            f"the optimizer of {path} goes on with weights in float32 and without their average alone: leave out "
            f"--weights.dtype and --weights.ema-decay{_ALONE}"
        )
    if kept.momentum != (settings.beta1 is not None):
        fix = "--optimizer.beta1 0.9 (or what it was trained with)" if kept.momentum else "--optimizer.beta1 None"
        return f"the Adafactor of {path} has {'' if kept.momentum else 'no '}momentum: give {fix}{_ALONE}"
    if kept.rules != settings.factor_rules:
        fix = "" if kept.rules == "mixed" else f": give --optimizer.factor-rules {kept.rules}"
        return (
            f"the Adafactor of {path} factors by {kept.rules} rules, this run's by {settings.factor_rules}{fix}{_ALONE}"
        )
    for name, spec in flatten(declare(opened.model)).items():
        if factoring(settings, spec, name).factored != (name in kept.slots["v_row"]):
            there = "as rows and columns" if name in kept.slots["v_row"] else "whole"
            return (
                f"the Adafactor of {path} keeps second moments of {name} {there}, this run's does not: set "
                f"--optimizer.factored and --optimizer.min-dim-size-to-factor to what they were{_ALONE}"
            )
    return None


def adafactor_state(opened: OpenedT5X, like: Any) -> AdafactorState:
    """T5X's state as ours, which has the shapes of `like`. Raises ConversionError where an array is damaged."""
    assert opened.kept is not None, "optimizer_problem was asked before"
    read = opened.kept.read()
    for slot in SLOTS:
        found = {name: array.shape for name, array in read[slot].items()}
        if found != (wanted := {name: tuple(leaf.shape) for name, leaf in getattr(like, slot).items()}):
            name = min(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            raise ConversionError(
                opened.checkpoint.path,
                f"{slot} of {name} has shape {found.get(name)}, and the optimizer of this run {wanted.get(name)}",
            )
    slots = {slot: {name: jnp.asarray(array) for name, array in read[slot].items()} for slot in SLOTS}
    return AdafactorState(jnp.asarray(opened.checkpoint.step, jnp.int32), **slots)
