"""AdamW, and AdamW with steps scaled by each parameter's RMS, as chains of optax transformations."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.optim.clipping import clip_by_global_norm
from spanloom.optim.factoring import Spec, inner_dims, is_matrix
from spanloom.optim.schedules import Curve
from spanloom.settings.optimizer import AdamW, AdamWRMS


def adamw(settings: AdamW | AdamWRMS, learning_rate: Curve, specs: Any) -> optax.GradientTransformation:
    """AdamW (Loshchilov and Hutter 2019) for the parameters that `specs` declares.

    The gradient is clipped to a global norm first; decay is multiplied by the learning rate, and spares everything
    that is not a matrix within one layer. `AdamWRMS` also scales the step, but not the decay, by the parameter's RMS.
    """
    parts = [
        optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon),
        optax.add_decayed_weights(settings.weight_decay, jax.tree.map(is_matrix, specs)),
        optax.scale_by_learning_rate(learning_rate),
    ]
    if isinstance(settings, AdamWRMS):
        parts.insert(1, scale_by_parameter_rms(settings.min_scale, specs))
    # Clipping has its place with and without, so that a run may go on with another limit or none.
    limit = settings.global_norm_clip
    parts.insert(0, optax.identity() if limit is None else clip_by_global_norm(limit))
    return optax.chain(*parts)


def scale_by_parameter_rms(min_scale: float, specs: Any) -> optax.GradientTransformation:
    """Multiply each parameter's update by max(min_scale, RMS), layer by layer (nanoT5's AdamWScale; no state)."""

    def scale(spec: Spec, update: jax.Array, param: jax.Array) -> jax.Array:
        rms = jnp.sqrt(jnp.mean(param * param, inner_dims(spec.axes), keepdims=True))
        return update * jnp.maximum(min_scale, rms)

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        if params is None:
            raise ValueError("steps scaled by the parameters' RMS need them: call update(grads, state, params)")
        return jax.tree.map(scale, specs, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
