"""A run that begins with a model from elsewhere: what of its Adafactor goes on here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored_model import Memory
from spanloom.conversion.t5x import OpenedT5X
from spanloom.conversion.weights import read_whole
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


def optimizer_problem(path: Path, model: Model, memory: Memory | None, run: Run) -> str | None:
    """What keeps the run's optimizer from going on with an Adafactor's memory; None if nothing does."""
    settings = run.optimizer
    if memory is None:
        return f"{path} holds no state of Adafactor, so none can go on from there: give --follow.optimizer reset"
    if not isinstance(settings, Adafactor):
        return f"{path} holds the state of Adafactor, and this run has {type(settings).__name__}: set Adafactor{_ALONE}"
    if run.weights.dtype != "float32" or run.weights.ema_decay is not None:
        return (
            f"the optimizer of {path} goes on with weights in float32 and without their average alone: leave out "
            f"--weights.dtype and --weights.ema-decay{_ALONE}"
        )
    if memory.momentum != (settings.beta1 is not None):
        fix = "--optimizer.beta1 0.9 (or what it was trained with)" if memory.momentum else "--optimizer.beta1 None"
        return f"the Adafactor of {path} has {'' if memory.momentum else 'no '}momentum: give {fix}{_ALONE}"
    if memory.rules != settings.factor_rules:
        fix = "" if memory.rules == "mixed" else f": give --optimizer.factor-rules {memory.rules}"
        ours = settings.factor_rules
        return f"the Adafactor of {path} factors by {memory.rules} rules, this run's by {ours}{fix}{_ALONE}"
    for name, spec in flatten(declare(model)).items():
        if factoring(settings, spec, name).factored != (name in memory.slots["v_row"]):
            there = "as rows and columns" if name in memory.slots["v_row"] else "whole"
            return (
                f"the Adafactor of {path} keeps second moments of {name} {there}, this run's does not: set "
                f"--optimizer.factored and --optimizer.min-dim-size-to-factor to what they were{_ALONE}"
            )
    return None


def adafactor_state(path: Path, memory: Memory | None, like: Any) -> AdafactorState:
    """An Adafactor's memory as our state, which has the shapes of `like`. ConversionError names a damaged array."""
    assert memory is not None, "optimizer_problem was asked before"
    for slot in SLOTS:
        found = {name: one.weight.shape for name, one in memory.slots[slot].items()}
        if found != (wanted := {name: tuple(leaf.shape) for name, leaf in getattr(like, slot).items()}):
            name = min(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
            raise ConversionError(
                path, f"{slot} of {name} has shape {found.get(name)}, and the optimizer of this run {wanted.get(name)}"
            )
    slots = {
        slot: {name: jnp.asarray(read_whole(one.weight)) for name, one in sorted(memory.slots[slot].items())}
        for slot in SLOTS
    }
    return AdafactorState(jnp.asarray(memory.count, jnp.int32), **slots)
