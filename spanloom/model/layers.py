"""The layers of T5: RMS norm, feed-forward, attention blocks, dropout. Activations are in the type of `x`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model import params as P
from spanloom.model.attention import attention
from spanloom.settings.model import Model

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "linear": lambda x: x,
}


def rms_norm(x_BxLxE: jax.Array, norm: P.Norm, epsilon: float) -> jax.Array:
    """Divide by the root mean square and scale; no mean, no bias (Zhang and Sennrich 2019). Computed in float32."""
    x32 = x_BxLxE.astype(jnp.float32)
    mean_square = jnp.mean(jnp.square(x32), axis=-1, keepdims=True)
    normal = (x32 * jax.lax.rsqrt(mean_square + epsilon)).astype(x_BxLxE.dtype)
    return normal * norm.scale.astype(x_BxLxE.dtype)


def dense(x: jax.Array, layer: P.Dense) -> jax.Array:
    """x @ kernel, in the type of x."""
    return x @ layer.kernel.astype(x.dtype)


def subkey(key: jax.Array | None, number: Any) -> jax.Array | None:
    """The `number`-th key derived from `key`; None (no dropout) stays None."""
    return None if key is None else jax.random.fold_in(key, number)


def keep_mask(key: jax.Array | None, rate: float, shape: tuple[int, ...], dtype: Any) -> jax.Array | None:
    """What dropout multiplies by: 0 with probability `rate`, else 1 / (1 - rate). None where nothing is dropped."""
    if key is None or rate == 0:
        return None
    return jax.random.bernoulli(key, 1 - rate, shape).astype(dtype) / jnp.asarray(1 - rate, dtype)


def dropout(x_BxLxE: jax.Array, key: jax.Array | None, rate: float, *, same_along_length: bool = True) -> jax.Array:
    """Dropout; T5 drops the same features at every position of a sequence, except after the encoder's last norm."""
    batch, length, width = x_BxLxE.shape
    keep = keep_mask(key, rate, (batch, 1 if same_along_length else length, width), x_BxLxE.dtype)
    return x_BxLxE if keep is None else x_BxLxE * keep


def mlp(x_BxLxE: jax.Array, layer: P.MLP, config: Model, key: jax.Array | None) -> jax.Array:
    """Feed-forward layer, gated if it has two activations (Shazeer 2020)."""
    if layer.wi is not None:
        hidden_BxLxF = ACTIVATIONS[config.activations[0]](dense(x_BxLxE, layer.wi))
    else:
        assert layer.wi_0 is not None and layer.wi_1 is not None
        first, second = (ACTIVATIONS[name] for name in config.activations)
        hidden_BxLxF = first(dense(x_BxLxE, layer.wi_0)) * second(dense(x_BxLxE, layer.wi_1))
    return dense(dropout(hidden_BxLxF, key, config.dropout), layer.wo)


def split_heads(x_BxLxHD: jax.Array, config: Model) -> jax.Array:
    """(B, L, heads * d_kv) to (B, L, heads, d_kv)."""
    return x_BxLxHD.reshape(*x_BxLxHD.shape[:-1], config.num_heads, config.d_kv)


def attend(
    x_BxTxE: jax.Array,
    context_BxSxE: jax.Array,
    layer: P.Attention,
    config: Model,
    bias_1xHxTxS: jax.Array | None,
    mask_Bx1xTxS: jax.Array,
    key: jax.Array | None,
) -> jax.Array:
    """Multi-head attention of `x` to `context` (the same array in self-attention)."""
    query = split_heads(dense(x_BxTxE, layer.query), config)
    keys = split_heads(dense(context_BxSxE, layer.key), config)
    values = split_heads(dense(context_BxSxE, layer.value), config)
    shape = (x_BxTxE.shape[0], config.num_heads, 1, context_BxSxE.shape[1])
    keep = keep_mask(key, config.dropout, shape, x_BxTxE.dtype)
    mixed_BxTxHxD = attention(query, keys, values, bias_1xHxTxS, mask_Bx1xTxS, keep)
    return dense(mixed_BxTxHxD.reshape(*x_BxTxE.shape[:2], -1), layer.out)
