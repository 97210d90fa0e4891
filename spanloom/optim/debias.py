"""How much of a moving average that began at 0 is there by now (Kingma and Ba 2015)."""

import math

import jax
import jax.numpy as jnp


def debias(decay: float, count: jax.Array) -> jax.Array:
    """1 - decay^count, float32, to its last digits, which a difference of two numbers near 1 has not."""
    return -jnp.expm1(count.astype(jnp.float32) * (math.log(decay) if decay else -math.inf))
