"""What one training step changes: the step counter, the weights and the optimizer's memory."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.model.params import initialize
from spanloom.optim.averaged import averaged_params
from spanloom.optim.rounding import as_kept
from spanloom.scale.mesh import Layout
from spanloom.settings.weights import Weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The whole state of training, as a JAX pytree.

    Nothing else is carried from step to step: data, noise and dropout are functions of the seed and the step.
    """

    step: jax.Array
    """Updates done so far; int32 scalar."""
    params: Any
    """The weights, in the type they are kept in, a tree as `spanloom.model.params.declare` has it."""
    opt_state: Any
    """What the optimizer remembers: an optax state."""


def drawn_weights(specs: Any, settings: Weights, key: jax.Array) -> Any:
    """Random weights for what `specs` declares, in the type that the settings keep them in."""
    return as_kept(initialize(specs, key), settings)


def fresh_state(
    params: Any, optimizer: optax.GradientTransformation, opt_state: Any = None, shardings: Any = None
) -> TrainState:
    """The state before the first update of `params`, whose optimizer may go on with a state that it has; a new one is
    divided among devices as `shardings`, a tree of its like, say.
    """
    if opt_state is None:  # jit: one compilation and one pass over memory, not one for each of hundreds of leaves
        opt_state = jax.jit(optimizer.init, out_shardings=shardings)(params)
    return TrainState(jnp.zeros((), jnp.int32), params, opt_state)


def state_places(specs: Any, shapes: TrainState, layout: Layout) -> TrainState:
    """How `layout` divides a state of these shapes: a tree like it, of shardings."""
    step: Any = layout.replicated
    return TrainState(step, layout.params(specs), layout.optimizer_state(specs, shapes.opt_state))


def averaged_weights(state: TrainState) -> Any | None:
    """Its averaged weights (`spanloom.optim.averaged.averaged_params`), lying as its weights do; None if it has none.

    An optimizer's state is in more parts than the weights, and evaluation would gather them for every batch.
    """
    if jax.eval_shape(averaged_params, state.opt_state, state.params) is None:
        return None
    places = jax.tree.map(lambda leaf: leaf.sharding, state.params)
    return jax.jit(averaged_params, out_shardings=places)(state.opt_state, state.params)


def state_shapes(specs: Any, optimizer: optax.GradientTransformation, settings: Weights) -> TrainState:
    """Shapes and types of a state, as `jax.ShapeDtypeStruct`s: nothing is computed."""
    fresh = lambda key: fresh_state(drawn_weights(specs, settings, key), optimizer)  # noqa: E731
    return jax.eval_shape(fresh, jax.random.key(0))
