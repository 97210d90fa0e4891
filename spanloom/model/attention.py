"""Attention: one function, masks as additive biases, and T5's relative-position bias."""

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from spanloom.model.placement import ANYWHERE, Placement
from spanloom.model.remat import MIXED

ON_CHIP = 128 * 1024 * 1024
"""Bytes that a TPU can hold on the chip (v5e, v6e)."""

MASKED = -1e10  # added to the logits of keys that must not be seen; finite, so a row without keys stays finite


def attention(
    query_BxTxHxD: jax.Array,
    key_BxSxHxD: jax.Array,
    value_BxSxHxD: jax.Array,
    bias_1xHxTxS: jax.Array | None,
    mask_Bx1xTxS: jax.Array,
    batch_shards: int = 1,
) -> jax.Array:
    """Softmax attention without scaling of the logits (T5 has folded it into the query's weights).

    `bias` (float32, broadcast over the batch) and `mask` (float32, 0 or MASKED, any axis may be 1, constant) are added
    to the logits. Logits and softmax are float32, products are in the type of the inputs. `batch_shards` are the parts
    into which the batch is divided. Returns (B, T, H, D) in the type of `value`.
    """
    if bias_1xHxTxS is None:
        bias_1xHxTxS = jnp.zeros((1, 1, 1, 1), jnp.float32)
    batch, length, heads, _ = query_BxTxHxD.shape
    size = batch * heads * length * key_BxSxHxD.shape[1] * value_BxSxHxD.dtype.itemsize / batch_shards
    return _attention(size > ON_CHIP, query_BxTxHxD, key_BxSxHxD, value_BxSxHxD, bias_1xHxTxS, mask_Bx1xTxS)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(
    large: bool, query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array, mask: jax.Array
) -> jax.Array:
    return _attention_forward(large, query, key, value, bias, mask)[0]


def _logits(query: jax.Array, key: jax.Array, bias: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.einsum("bthd,bshd->bhts", query, key, preferred_element_type=jnp.float32) + bias + mask


def _attention_forward(
    large: bool, query: jax.Array, key: jax.Array, value: jax.Array, bias: jax.Array, mask: jax.Array
) -> tuple[jax.Array, Any]:
    """The sum of values is divided by the sum of exponentials, not each weight: (T, D) quotients instead of (T, S).

    A TPU computes logits again faster than it reads them from outside of the chip: `large` ones in the forward pass,
    whose exponentials are written down anyway and are kept; others in the backward pass, as every other device.
    """
    largest = checkpoint_name(jnp.max(_logits(query, key, bias, mask), axis=-1, keepdims=True), MIXED)
    operands = (query, key, largest)
    if large:
        operands = jax.lax.platform_dependent(operands, tpu=jax.lax.optimization_barrier, default=lambda same: same)
    powers_BxHxTxS = jnp.exp(_logits(*operands[:2], bias, mask) - operands[2]).astype(value.dtype)
    total_BxHxTx1 = jnp.sum(powers_BxHxTxS, axis=-1, keepdims=True, dtype=jnp.float32)
    mixed = jnp.einsum("bhts,bshd->bthd", powers_BxHxTxS, value, preferred_element_type=jnp.float32)
    mixed = (mixed / jnp.moveaxis(total_BxHxTx1, 1, 2)).astype(value.dtype)
    # Not their logarithm added up: where every key is masked, `largest` is so large that a float32 sum would lose it.
    mixed, inverse_total = checkpoint_name((mixed, 1 / total_BxHxTx1), MIXED)
    kept = powers_BxHxTxS if large else None
    return mixed, (query, key, value, bias, mask, largest, inverse_total, mixed, kept)


def _attention_backward(large: bool, saved: Any, gradient: jax.Array) -> tuple[Any, ...]:
    """The backward pass of FlashAttention (Dao et al. 2022), not in tiles: no (B, H, T, S) array is kept for it, but
    for `large` ones on TPUs.

    The weights are computed again from the kept maxima and sums (the barrier stops XLA from keeping the logits after
    all). d logits = weights * (d weights - sum over keys of weights * d weights), where that sum is the product
    of the output and its gradient.
    """
    query, key, value, bias, mask, largest, inverse_total, mixed, kept = saved
    inner_BxTxHx1 = jnp.sum((gradient * mixed).astype(jnp.float32), axis=-1, keepdims=True)
    query, key, gradient = jax.lax.optimization_barrier((query, key, gradient))
    again = lambda _, query, key: jnp.exp(_logits(query, key, bias, mask) - largest)  # noqa: E731
    if large:
        as_kept = lambda kept, *_: kept.astype(jnp.float32)  # noqa: E731
        powers_BxHxTxS = jax.lax.platform_dependent(kept, query, key, tpu=as_kept, default=again)
    else:
        powers_BxHxTxS = again(kept, query, key)
    weights_BxHxTxS = (powers_BxHxTxS * inverse_total).astype(value.dtype)
    value_gradient = jnp.einsum("bhts,bthd->bshd", weights_BxHxTxS, gradient)
    weights_gradient = jnp.einsum("bthd,bshd->bhts", gradient, value, preferred_element_type=jnp.float32)
    logits_gradient = weights_BxHxTxS * (weights_gradient - jnp.moveaxis(inner_BxTxHx1, 1, 2))
    bias_gradient = _sum_to(logits_gradient, bias.shape)
    logits_gradient = logits_gradient.astype(query.dtype)
    query_gradient = jnp.einsum("bhts,bshd->bthd", logits_gradient, key)
    key_gradient = jnp.einsum("bhts,bthd->bshd", logits_gradient, query)
    return query_gradient, key_gradient, value_gradient, bias_gradient, None


_attention.defvjp(_attention_forward, _attention_backward)


def _sum_to(x_BxHxTxS: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The gradient of broadcasting `shape` to the shape of `x`: for a bias, the sum over the batch."""
    if shape == (1, *x_BxHxTxS.shape[1:]):
        return sum_first_axis(x_BxHxTxS)[None]
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return jnp.sum(x_BxHxTxS, axis=axes, keepdims=True)


def sum_first_axis(x: jax.Array) -> jax.Array:
    """Sum over axis 0, float32. XLA's CPU compiler sums rows ten times more slowly than it multiplies by ones."""
    return jax.lax.platform_dependent(
        x,
        cpu=lambda x: jnp.einsum("b,b...->...", jnp.ones(x.shape[0], x.dtype), x),
        default=lambda x: jnp.sum(x, axis=0),
    )


def padding_mask(
    key_valid_BxS: jax.Array,
    query_segments_BxT: jax.Array | None = None,
    key_segments_BxS: jax.Array | None = None,
    *,
    causal: bool = False,
) -> jax.Array:
    """Additive float32 mask: 0 where a query may see a key, MASKED elsewhere. Shape (B, 1, 1 or T, S).

    Keys are seen where valid, in the query's own segment if segments are given, and not later than the query if
    `causal`. Padding queries see what others see: their outputs are never used.
    """
    visible_Bx1xTxS = key_valid_BxS[:, None, None, :]
    if query_segments_BxT is not None and key_segments_BxS is not None:
        same = query_segments_BxT[:, None, :, None] == key_segments_BxS[:, None, None, :]
        visible_Bx1xTxS = visible_Bx1xTxS & same
    if causal:
        length = key_valid_BxS.shape[-1]
        visible_Bx1xTxS = visible_Bx1xTxS & np.tri(length, dtype=bool)[None, None]
    return jnp.where(visible_Bx1xTxS, 0.0, MASKED).astype(jnp.float32)


@dataclass(frozen=True)
class Mask:
    """Which keys a query may see, in the forms that implementations of attention take it in."""

    added_Bx1xTxS: jax.Array
    """The whole of it as `padding_mask` gives it."""
    key_lengths_B: jax.Array | None
    """Where the text of each row ends, int32, if that and `causal` are all there is to it; None for packed rows."""
    causal: bool
    """Whether later keys are hidden."""
    query_numbers_BxT: jax.Array | None
    """int32: a query sees the keys of its own number. None: all have 1."""
    key_numbers_BxS: jax.Array
    """int32; no query has that of padding."""
    place: Placement
    """Where the arrays lie."""


def make_mask(
    key_valid_BxS: jax.Array,
    query_segments_BxT: jax.Array | None = None,
    key_segments_BxS: jax.Array | None = None,
    *,
    causal: bool = False,
    place: Placement = ANYWHERE,
) -> Mask:
    """The mask of `padding_mask`."""
    added = padding_mask(key_valid_BxS, query_segments_BxT, key_segments_BxS, causal=causal)
    if query_segments_BxT is not None and key_segments_BxS is not None:
        numbers = jnp.where(key_valid_BxS, key_segments_BxS, -1)
        return Mask(added, None, causal, query_segments_BxT, numbers, place)
    ends_S = np.arange(1, key_valid_BxS.shape[-1] + 1, dtype=np.int32)
    key_lengths_B = jnp.max(jnp.where(key_valid_BxS, ends_S, 0), axis=-1)
    return Mask(added, key_lengths_B, causal, None, key_valid_BxS.astype(jnp.int32), place)


def position_bucket(distance: np.ndarray, *, bidirectional: bool, buckets: int, max_distance: int) -> np.ndarray:
    """Bucket of each relative position, key minus query (Raffel et al. 2020, as T5X computes it).

    Half of the buckets (of each direction, if `bidirectional`) are for exact small distances, the rest logarithmic up
    to `max_distance`. Without `bidirectional`, keys to the right of the query share bucket 0. Integers in and out,
    computed once on the host.
    """
    backwards = -np.asarray(distance, np.int64)
    base = np.zeros_like(backwards)
    if bidirectional:
        buckets //= 2
        base = np.where(backwards < 0, buckets, 0)
        backwards = np.abs(backwards)
    backwards = np.maximum(backwards, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(backwards, 1) / exact + np.finfo(np.float32).eps) / math.log(max_distance / exact)
    far = np.minimum(exact + (ratio * (buckets - exact)).astype(np.int64), buckets - 1)
    return (base + np.where(backwards < exact, backwards, far)).astype(np.int32)


def position_bias(
    table_HxN: jax.Array, query_length: int, key_length: int, *, bidirectional: bool, max_distance: int
) -> jax.Array:
    """Relative-position bias of a stack, float32, shape (1, H, T, S), from a table (heads, buckets).

    The bias depends on key minus query alone. So the table is read for the T + S distances that occur, and row t is
    that line shifted by t, made by writing the line T times and cutting it into rows one shorter. Its gradient is a sum
    over rows instead of a scatter into the table for each of the T * S elements.
    """
    heads, buckets = table_HxN.shape
    width = key_length + query_length
    distance = np.arange(width)
    distance = np.where(distance < key_length, distance, distance - width)
    bucket = position_bucket(distance, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    line_HxW = table_HxN.astype(jnp.float32)[:, bucket]
    # A product with ones instead of a broadcast, for the sake of the gradient: XLA's CPU sums of rows are very slow.
    ones_T = jnp.ones(query_length, jnp.float32)
    lines_HxTW = jnp.einsum("t,hw->htw", ones_T, line_HxW, precision="highest").reshape(heads, -1)
    rows = lines_HxTW[:, : query_length * (width - 1)].reshape(heads, query_length, width - 1)
    return rows[None, :, :, :key_length]
