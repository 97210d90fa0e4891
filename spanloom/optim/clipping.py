"""Clipping of gradients to a global norm (Pascanu et al. 2013)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax


def global_norm(grads: Any) -> jax.Array:
    """The L2 norm over all leaves together, float32."""
    return jnp.sqrt(jnp.sum(jnp.stack([jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(grads)])))


def clip_scale(grads: Any, limit: float) -> jax.Array:
    """What to multiply the gradients with so that their global norm is at most `limit`; at most 1."""
    return limit * jnp.minimum(1 / limit, 1 / global_norm(grads))


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Multiply all gradients by `clip_scale`; no state. One multiplication, which XLA fuses into what comes next."""

    def update(grads: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        scale = clip_scale(grads, limit)
        return jax.tree.map(lambda g: g * scale.astype(g.dtype), grads), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
