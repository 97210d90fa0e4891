"""Averaged weights: a moving average beside any optimizer, and where a state keeps the weights to evaluate.

The average begins with the weights after the first step, without a trace of the random ones before: step t of decay d
moves it by (1 - d) / (1 - d^t) of the way, which is the average of zeros debiased as Adam does (Kingma and Ba 2015).
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.optim.debias import debias
from spanloom.optim.schedule_free import ScheduleFreeState


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class AveragedState:
    """An optimizer's state with the average of the weights beside it."""

    count: jax.Array
    """Steps taken, int32 scalar."""
    inner: Any
    """The optimizer's own state."""
    weights: Any
    """The average, float32, a tree like the parameters; before the first step the parameters themselves."""

    def average(self, params: Any) -> Any:
        """The averaged weights."""
        return self.weights


def with_average(optimizer: optax.GradientTransformation, decay: float) -> optax.GradientTransformation:
    """`optimizer`, with an average of the weights that its updates lead to in its state."""

    def init(params: Any) -> AveragedState:
        # A copy: state and parameters are donated together.
        copied = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.float32, copy=True), params)
        return AveragedState(jnp.zeros((), jnp.int32), optimizer.init(params), copied)

    def update(grads: Any, state: AveragedState, params: Any = None) -> tuple[Any, AveragedState]:
        updates, inner = optimizer.update(grads, state.inner, params)
        count = state.count + 1
        part = (1 - decay) / debias(decay, count)

        def move(average: jax.Array, weight: jax.Array, update: jax.Array) -> jax.Array:
            return average + part * (weight.astype(jnp.float32) + update.astype(jnp.float32) - average)

        return updates, AveragedState(count, inner, jax.tree.map(move, state.weights, params, updates))

    return optax.GradientTransformation(init, update)


def averaged_params(opt_state: Any, params: Any) -> Any | None:
    """The weights to evaluate and export, float32, of an optimizer's state and the parameters beside it.

    An average of weights, or schedule-free's x; None where the optimizer keeps neither, and the parameters themselves
    are the model. Pure, and may be jitted: whether there are any follows from the types.
    """
    found = [state for state in jax.tree.leaves(opt_state, is_leaf=_is_averaged) if _is_averaged(state)]
    return found[0].average(params) if found else None


def _is_averaged(node: Any) -> bool:
    return isinstance(node, AveragedState | ScheduleFreeState)
