"""Weights kept in bfloat16: how steps far smaller than its 8 bits still add up.

Rounded to the nearest, a step below 1/512 of a weight changes nothing. Stochastic rounding goes up or down by chance,
so that the mean of many is right (Gupta et al. 2015); Kahan summation keeps what was lost beside the weight and adds it
to the next step (Zamirai et al. 2020, "Revisiting BFloat16 Training").
"""

import zlib
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.model.params import path_name
from spanloom.optim.factoring import is_projection
from spanloom.settings.weights import Weights

_LOW = 16  # bits of a float32 that bfloat16 has not


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RoundedState:
    """What is kept beside bfloat16 weights."""

    count: jax.Array
    """Steps taken, int32 scalar."""
    inner: Any
    """The optimizer's state, as for float32 weights."""
    lost: Any
    """Kahan: what each weight lacks, bfloat16, a tree like the weights; stochastic: None."""


def as_kept(params: Any, weights: Weights) -> Any:
    """The weights in the type that they are kept in, rounded to the nearest."""
    return jax.tree.map(lambda leaf: leaf.astype(weights.dtype), params)


def as_used(params: Any, specs: Any) -> Any:
    """The weights as gradients are taken of them: the layers' kernels as they are kept, all others in float32.

    A kernel's gradient has no more digits than the network computes in, and a copy would cost what bfloat16 saves; that
    of embeddings, norms and tables is a sum over many tokens and layers.
    """
    return jax.tree.map(lambda spec, x: x if is_projection(spec) else x.astype(jnp.float32), specs, params)


def rounded(optimizer: optax.GradientTransformation, weights: Weights, seed: int) -> optax.GradientTransformation:
    """`optimizer` for bfloat16 weights.

    It is given float32 copies of them, so that all its moments are float32. The updates are float32 and such that
    adding one to its weight gives the rounded weight. Chance is keyed by the seed, the step and the parameter's name.
    """
    kahan = weights.rounding == "kahan"

    def init(params: Any) -> RoundedState:
        lost = jax.tree.map(jnp.zeros_like, params) if kahan else None
        return RoundedState(jnp.zeros((), jnp.int32), optimizer.init(_in_float32(params)), lost)

    def update(grads: Any, state: RoundedState, params: Any = None) -> tuple[Any, RoundedState]:
        weights_32 = _in_float32(params)
        steps, inner = optimizer.update(_in_float32(grads), state.inner, weights_32)
        lost = state.lost
        if kahan:
            steps = jax.tree.map(lambda step, left: step + left.astype(jnp.float32), steps, lost)
            new = jax.tree.map(lambda w, step: nearest(w + step), weights_32, steps)
            lost = jax.tree.map(lambda w, step, n: (step - (n - w)).astype(jnp.bfloat16), weights_32, steps, new)
        else:
            key = jax.random.fold_in(jax.random.key(seed), state.count)
            new = jax.tree_util.tree_map_with_path(
                lambda path, w, step: stochastic(w + step, _key_of(key, path)), weights_32, steps
            )
        updates = jax.tree.map(jnp.subtract, new, weights_32)
        return updates, RoundedState(state.count + 1, inner, lost)

    return optax.GradientTransformation(init, update)


def nearest(x: jax.Array) -> jax.Array:
    """Rounded to the nearest bfloat16, as float32. (A cast and back XLA may leave out, to be more exact.)"""
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)


def stochastic(x: jax.Array, key: jax.Array) -> jax.Array:
    """Rounded to one of the two bfloat16 next to x (float32), each with a chance that makes x the mean; as float32.

    What is not finite stays as it is.
    """
    noise = jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    kept = jax.lax.bitcast_convert_type(bits >> _LOW << _LOW, jnp.float32)
    return jnp.where(jnp.isfinite(x), kept, x)


def _in_float32(params: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)


def _key_of(key: jax.Array, path: Any) -> jax.Array:
    return jax.random.fold_in(key, zlib.crc32(path_name(path).encode()))
