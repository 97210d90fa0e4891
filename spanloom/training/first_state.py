"""The state that training begins or goes on with, on the devices that it is to be on."""

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.model.loss import expected_initial_loss
from spanloom.model.params import declare
from spanloom.optim.rounding import as_kept
from spanloom.pipeline.positions import Position
from spanloom.scale.mesh import Layout
from spanloom.settings.run import Run
from spanloom.training.checkpoints import restore
from spanloom.training.progress import Display
from spanloom.training.start import Found, load_start
from spanloom.training.state import TrainState, drawn_weights, fresh_state, state_places, state_shapes


@dataclass(frozen=True)
class FirstState:
    """Where training begins."""

    state: TrainState
    """Weights and optimizer."""
    places: Any
    """How they are divided: a tree like the state's, of shardings."""
    step: int
    """Updates done."""
    position: Position
    """Where in the data."""
    loss: tuple[float, float]
    """Least and most that the first loss may be, in nats a token."""


def first_state(
    run: Run,
    optimizer: optax.GradientTransformation,
    layout: Layout,
    checkpoint: Path | None,
    found: Found | None,
    start: Position,
    display: Display,
    *,
    check: bool = True,
) -> FirstState:
    """Found in this order:

    1. The last checkpoint of this directory: weights, optimizer, step and position; the run goes on.
    2. `run.start` names a Spanloom checkpoint or run: its weights, and its optimizer as `follow` says, from step 0.
    3. `run.start` names a checkpoint of T5X: its weights, and its Adafactor as `follow` says, from step 0.
    4. `run.start` names a Hugging Face folder: its weights alone.
    5. Otherwise random weights, drawn from the seed.
    6. What is damaged or does not fit is an error, never passed over for the next in this order.

    Weights are divided as `layout` has it before they are whole anywhere. `check`: read a checkpoint's files first to
    see that they are what was written. Raises CheckpointError and ConversionError.
    """
    specs = declare(run.model)
    shapes = state_shapes(specs, optimizer, run.weights)
    places = state_places(specs, shapes, layout)
    step, position, loss = 0, start, expected_initial_loss(run.model, run.loss)
    if checkpoint:
        restored = restore(checkpoint, shapes.opt_state, layout, check=check)
        step, position = restored.step, restored.position
        state = TrainState(jnp.asarray(step, jnp.int32), restored.params, restored.opt_state)
    elif found:
        like = shapes.opt_state if run.follow.optimizer == "continue" else None
        given, loss = load_start(run, found, layout, like, check=check), (-math.inf, loss[1])
        state = fresh_state(as_kept(given.params, run.weights), optimizer, given.opt_state, places.opt_state)
        display.say(f"start: {given.description}")
        for warning in given.warnings:
            display.warn(warning)
    else:
        draw = functools.partial(drawn_weights, specs, run.weights)
        params = jax.jit(draw, out_shardings=places.params)(jax.random.key(run.seed))
        state = fresh_state(params, optimizer, shardings=places.opt_state)
    return FirstState(layout.put(state, places), places, step, position, loss)
