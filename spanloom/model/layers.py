"""The layers of T5: RMS norm, feed-forward, attention blocks, dropout. Activations are in the type of `x`."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from spanloom.model import params as tree
from spanloom.model.attention import Mask, attention
from spanloom.model.fused_attention import fused_attention, takes_fused
from spanloom.model.pallas_attention import pallas_attention, takes_pallas
from spanloom.model.remat import PROJECTIONS, UP
from spanloom.settings.model import Model

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "linear": lambda x: x,
}


def rms_norm(x_BxLxE: jax.Array, norm: tree.Norm, epsilon: float) -> jax.Array:
    """Divide by the root mean square and scale; no mean, no bias (Zhang and Sennrich 2019). Computed in float32."""
    return _rms_norm(epsilon, x_BxLxE, norm.scale)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rms_norm(epsilon: float, x: jax.Array, scale: jax.Array) -> jax.Array:
    return _rms_norm_forward(epsilon, x, scale)[0]


def _rms_norm_forward(epsilon: float, x: jax.Array, scale: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    x32 = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + epsilon)
    return _scaled(x, inverse, scale), (x, inverse, scale)


def _scaled(x: jax.Array, inverse: jax.Array, scale: jax.Array) -> jax.Array:
    return (x.astype(jnp.float32) * inverse).astype(x.dtype) * scale.astype(x.dtype)


def _rms_norm_backward(epsilon: float, saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, ...]:
    """Keeps nothing but x and one number a row: the rest is cheaper to compute again than to keep."""
    x, inverse, scale = saved
    gradient32, normal = gradient.astype(jnp.float32), x.astype(jnp.float32) * inverse
    scale_gradient = jnp.sum(gradient32 * normal, axis=tuple(range(x.ndim - 1)))
    towards = gradient32 * scale
    x_gradient = inverse * (towards - normal * jnp.mean(towards * normal, axis=-1, keepdims=True))
    return x_gradient.astype(x.dtype), scale_gradient


_rms_norm.defvjp(_rms_norm_forward, _rms_norm_backward)


def normed_dense(x: jax.Array, norm: tree.Norm, epsilon: float, *layers: tree.Dense) -> tuple[jax.Array, ...]:
    """`dense` of `rms_norm`; what stands between them is computed again for the gradient, except on CPU."""
    return _normed_products(epsilon, x, norm.scale, _kernels(layers))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normed_products(
    epsilon: float, x: jax.Array, scale: jax.Array, kernels: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    return _normed_forward(epsilon, x, scale, kernels)[0]


def _normed_forward(epsilon: float, x: jax.Array, scale: jax.Array, kernels: tuple[jax.Array, ...]) -> tuple[Any, Any]:
    y, of_norm = _rms_norm_forward(epsilon, x, scale)
    results, of_products = _products_forward(y, kernels)
    return results, (of_norm, of_products)


def _normed_backward(epsilon: float, saved: Any, gradients: tuple[jax.Array, ...]) -> tuple[Any, ...]:
    of_norm, (y, kernels) = saved
    again = lambda of_norm, _: _scaled(*jax.lax.optimization_barrier(of_norm))  # noqa: E731
    y = jax.lax.platform_dependent(of_norm, y, cpu=lambda _, y: y, default=again)
    y_gradient, kernel_gradients = _products_backward((y, kernels), gradients)
    return *_rms_norm_backward(epsilon, of_norm, y_gradient), kernel_gradients


_normed_products.defvjp(_normed_forward, _normed_backward)


def dense(x: jax.Array, *layers: tree.Dense) -> tuple[jax.Array, ...]:
    """x @ kernel for each layer, in the type of x.

    `x` is (..., E), every kernel (E, F), all of one shape; returns one (..., F) for each layer.
    """
    return _products(x, _kernels(layers))


def _kernels(layers: Iterable[tree.Dense]) -> tuple[jax.Array, ...]:
    return tuple(layer.kernel for layer in layers)


@jax.custom_vjp
def _products(x: jax.Array, kernels: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """(..., E) times each of K kernels (E, F)."""
    return _products_forward(x, kernels)[0]


def _products_forward(x: jax.Array, kernels: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], Any]:
    return tuple(jnp.einsum("...e,ef->...f", x, kernel.astype(x.dtype)) for kernel in kernels), (x, kernels)


def _products_backward(saved: Any, gradients: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """The usual gradient. Kernels are cast again, for the copy would be kept for so long."""
    x, kernels = saved
    # TPUs cast what they multiply as they read it, and need a copy only behind a barrier.
    behind = jax.lax.platform_dependent(kernels, tpu=lambda same: same, default=jax.lax.optimization_barrier)
    pairs = zip(gradients, behind, strict=True)
    parts = (jnp.einsum("...f,ef->...e", gradient, kernel.astype(x.dtype)) for gradient, kernel in pairs)
    return functools.reduce(jnp.add, parts), tuple(
        jnp.einsum("...e,...f->ef", x, gradient, preferred_element_type=kernel.dtype)
        for gradient, kernel in zip(gradients, kernels, strict=True)
    )


_products.defvjp(_products_forward, _products_backward)


def subkey(key: jax.Array | None, number: Any) -> jax.Array | None:
    """The `number`-th key derived from `key`; None (no dropout) stays None."""
    return None if key is None else jax.random.fold_in(key, number)


def dropped(x: jax.Array, key: jax.Array | None, rate: float, shape: tuple[int, ...]) -> jax.Array:
    """`x` times numbers of `shape`, broadcast: 0 with probability `rate`, else 1 / (1 - rate)."""
    if key is None or rate == 0:
        return x
    return x * (jax.random.bernoulli(key, 1 - rate, shape).astype(x.dtype) / jnp.asarray(1 - rate, x.dtype))


def dropout(x_BxLxE: jax.Array, key: jax.Array | None, rate: float, *, same_along_length: bool = True) -> jax.Array:
    """Dropout; T5 drops the same features at every position of a sequence, except after the encoder's last norm."""
    batch, length, width = x_BxLxE.shape
    return dropped(x_BxLxE, key, rate, (batch, 1 if same_along_length else length, width))


def mlp(x_BxLxE: jax.Array, norm: tree.Norm, layer: tree.MLP, config: Model, key: jax.Array | None) -> jax.Array:
    """Norm and feed-forward layer, gated if it has two activations (Shazeer 2020)."""
    layers = [branch for branch in (layer.wi, layer.wi_0, layer.wi_1) if branch]
    *gate, up = normed_dense(x_BxLxE, norm, config.norm_epsilon, *layers)
    hidden_BxLxF = activate(config.activations, *gate, checkpoint_name(up, UP))
    return dense(dropout(hidden_BxLxF, key, config.dropout), layer.wo)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def activate(activations: tuple[str, ...], *branches: jax.Array) -> jax.Array:
    """Product of the activations of the branches."""
    parts = [ACTIVATIONS[name](x) for name, x in zip(activations, branches, strict=True)]
    return functools.reduce(jnp.multiply, parts)


def _activate_forward(activations: tuple[str, ...], *branches: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return activate(activations, *branches), branches


def _activate_backward(
    activations: tuple[str, ...], branches: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, ...]:
    """Keeps nothing but the branches; the barrier stops XLA from keeping the tanh after all."""
    branches, gradient = jax.lax.platform_dependent(
        branches,
        gradient,
        cpu=lambda branches, gradient: jax.lax.optimization_barrier((branches, gradient)),
        default=lambda branches, gradient: (jax.lax.optimization_barrier(branches), gradient),
    )
    pull = jax.vjp(functools.partial(activate.fun, activations), *branches)[1]
    return pull(gradient)


activate.defvjp(_activate_forward, _activate_backward)


def split_heads(x_BxLxHD: jax.Array, config: Model) -> jax.Array:
    """(B, L, heads * d_kv) to (B, L, heads, d_kv)."""
    return x_BxLxHD.reshape(*x_BxLxHD.shape[:-1], config.num_heads, config.d_kv)


def attend(
    x_BxTxE: jax.Array,
    norm: tree.Norm,
    context_BxSxE: jax.Array | None,
    layer: tree.Attention,
    config: Model,
    bias_1xHxTxS: jax.Array | None,
    mask: Mask,
    key: jax.Array | None,
) -> jax.Array:
    """Norm and multi-head attention of `x` to `context`, or to itself if that is None."""
    if context_BxSxE is None:
        inwards = (layer.query, layer.key, layer.value)
        query, keys, values = normed_dense(x_BxTxE, norm, config.norm_epsilon, *inwards)
    else:
        (query,) = normed_dense(x_BxTxE, norm, config.norm_epsilon, layer.query)
        keys, values = dense(context_BxSxE, layer.key, layer.value)
    query, keys, values = checkpoint_name((query, keys, values), PROJECTIONS)
    query, keys, values = (split_heads(x, config) for x in (query, keys, values))
    # T5 drops a weight for every query alike, which is to drop it of the values.
    values = dropped(values, key, config.dropout, (*keys.shape[:3], 1))
    if takes_fused(config):
        mixed_BxTxHxD = fused_attention(query, keys, values, bias_1xHxTxS, mask)
    elif takes_pallas(config, mask.place, query.shape[1], keys.shape[1]):
        mixed_BxTxHxD = pallas_attention(query, keys, values, bias_1xHxTxS, mask)
    else:
        shards = mask.place.batch_shards
        mixed_BxTxHxD = attention(query, keys, values, bias_1xHxTxS, mask.added_Bx1xTxS, shards)
    return dense(mixed_BxTxHxD.reshape(*x_BxTxE.shape[:2], -1), layer.out)[0]
