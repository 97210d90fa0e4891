"""Schedule-free AdamW (Defazio et al. 2024, "The Road Less Scheduled").

Three sequences of weights: z takes the steps, x averages z and is the model, and gradients are taken at y between them,
y = (1 - beta1) z + beta1 x. The parameters of the train state are y, the optimizer keeps z, and x follows from both.
`optax.contrib.schedule_free` takes the averaging weight from the learning rate of another step than the one taken.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.optim.clipping import clip_by_global_norm
from spanloom.optim.debias import debias
from spanloom.optim.decay import decay_mask
from spanloom.optim.schedules import Curve
from spanloom.settings.optimizer import ScheduleFree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ScheduleFreeState:
    """What is kept beside y; all float32, but the count."""

    count: jax.Array
    """Steps taken, int32 scalar."""
    highest_rate: jax.Array
    """Highest learning rate so far, scalar."""
    total: jax.Array
    """Sum of the steps' shares in the average, scalar."""
    beta1: jax.Array
    """Share of x in y, scalar: kept, so that x is known without the settings."""
    v: Any
    """Mean squared gradients, a tree like the parameters."""
    z: Any
    """The weights that take the steps, a tree like the parameters."""

    def average(self, params: Any) -> Any:
        """x, the averaged weights, of the parameters y."""
        return jax.tree.map(lambda y, z: (y - (1 - self.beta1) * z) / self.beta1, params, self.z)


def schedule_free(settings: ScheduleFree, learning_rate: Curve, specs: Any) -> optax.GradientTransformation:
    """The optimizer for the parameters that `specs` declares; updates are those of y.

    The gradient is clipped to a global norm first; decay is taken at y and multiplied by the learning rate.
    """
    decays, limit = decay_mask(settings.decayed, specs), settings.global_norm_clip
    clip = optax.identity() if limit is None else clip_by_global_norm(limit)

    def init(params: Any) -> ScheduleFreeState:
        return ScheduleFreeState(
            count=jnp.zeros((), jnp.int32),
            highest_rate=jnp.zeros((), jnp.float32),
            total=jnp.zeros((), jnp.float32),
            beta1=jnp.full((), settings.beta1, jnp.float32),
            v=jax.tree.map(jnp.zeros_like, params),
            z=jax.tree.map(jnp.copy, params),  # donated beside the parameters
        )

    def update(grads: Any, state: ScheduleFreeState, params: Any = None) -> tuple[Any, ScheduleFreeState]:
        if params is None:
            raise ValueError("schedule-free steps start from the parameters: call update(grads, state, params)")
        grads, _ = clip.update(grads, clip.init(params))
        count = state.count + 1
        rate = jnp.asarray(learning_rate(state.count), jnp.float32)
        highest = jnp.maximum(state.highest_rate, rate)
        share = (highest / settings.learning_rate) ** settings.weight_power  # a ratio: no power of it is out of range
        total = state.total + share
        part = jnp.where(total > 0, share / total, 1.0)  # of this step in the average; 1 while the rate is 0
        corrected = debias(settings.beta2, count)
        v = jax.tree.map(lambda v, g: settings.beta2 * v + (1 - settings.beta2) * g * g, state.v, grads)

        def direction(g: jax.Array, v: jax.Array, y: jax.Array, decayed: bool) -> jax.Array:
            step = g / (jnp.sqrt(v / corrected) + settings.epsilon)
            return step + settings.weight_decay * y if decayed and settings.weight_decay else step

        steps = jax.tree.map(direction, grads, v, params, decays)
        # x moves by `part` towards the new z, and y = (1 - beta1) z + beta1 x with both.
        moved = rate * (1 - settings.beta1 * (1 - part))
        updates = jax.tree.map(lambda y, z, step: part * (z - y) - moved * step, params, state.z, steps)
        z = jax.tree.map(lambda z, step: z - rate * step, state.z, steps)
        beta1 = jnp.full((), settings.beta1, jnp.float32)
        return updates, ScheduleFreeState(count, highest, total, beta1, v, z)

    return optax.GradientTransformation(init, update)
