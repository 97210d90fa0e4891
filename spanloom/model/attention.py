"""Attention: one function, masks as additive biases, and T5's relative-position bias."""

import math

import jax
import jax.numpy as jnp
import numpy as np

MASKED = -1e10  # added to the logits of keys that must not be seen; finite, so a row without keys stays finite


def attention(
    query_BxTxHxD: jax.Array,
    key_BxSxHxD: jax.Array,
    value_BxSxHxD: jax.Array,
    bias_1xHxTxS: jax.Array | None,
    mask_Bx1xTxS: jax.Array,
    keep_BxHx1xS: jax.Array | None = None,
) -> jax.Array:
    """Softmax attention without scaling of the logits (T5 has folded it into the query's weights).

    `bias` (float32, broadcast over the batch) and `mask` (float32, 0 or MASKED, any axis may be 1) are added to the logits.
    `keep` multiplies the weights: dropout, already divided by the share kept. Logits and softmax are float32,
    products are in the type of the inputs. Returns (B, T, H, D) in the type of `value`.
    """
    logits_BxHxTxS = jnp.einsum("bthd,bshd->bhts", query_BxTxHxD, key_BxSxHxD, preferred_element_type=jnp.float32)
    if bias_1xHxTxS is not None:
        logits_BxHxTxS = logits_BxHxTxS + bias_1xHxTxS
    weights_BxHxTxS = jax.nn.softmax(logits_BxHxTxS + mask_Bx1xTxS, axis=-1).astype(value_BxSxHxD.dtype)
    if keep_BxHx1xS is not None:
        weights_BxHxTxS = weights_BxHxTxS * keep_BxHx1xS
    return jnp.einsum("bhts,bshd->bthd", weights_BxHxTxS, value_BxSxHxD)


def padding_mask(
    key_valid_BxS: jax.Array,
    query_segments_BxT: jax.Array | None = None,
    key_segments_BxS: jax.Array | None = None,
    *,
    causal: bool = False,
) -> jax.Array:
    """Additive float32 mask: 0 where a query may see a key, MASKED elsewhere. Shape (B, 1, 1 or T, S).

    Keys are seen where valid, in the query's own segment if segments are given, and not later than the query if `causal`.
    Padding queries see what others see: their outputs are never used.
    """
    visible_Bx1xTxS = key_valid_BxS[:, None, None, :]
    if query_segments_BxT is not None and key_segments_BxS is not None:
        same = query_segments_BxT[:, None, :, None] == key_segments_BxS[:, None, None, :]
        visible_Bx1xTxS = visible_Bx1xTxS & same
    if causal:
        length = key_valid_BxS.shape[-1]
        visible_Bx1xTxS = visible_Bx1xTxS & np.tri(length, dtype=bool)[None, None]
    return jnp.where(visible_Bx1xTxS, 0.0, MASKED).astype(jnp.float32)


def position_bucket(distance: np.ndarray, *, bidirectional: bool, buckets: int, max_distance: int) -> np.ndarray:
    """Bucket of each relative position, key minus query (Raffel et al. 2020, as T5X computes it).

    Half of the buckets (of each direction, if `bidirectional`) are for exact small distances, the rest logarithmic up to `max_distance`.
    Without `bidirectional`, keys to the right of the query share bucket 0. Integers in and out, computed once on the host.
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

    The bias depends on key minus query alone. So the table is read for the T + S distances that occur, and row t is that line
    shifted by t, made by writing the line T times and cutting it into rows one shorter. Its gradient is a sum over
    rows instead of a scatter into the table for each of the T * S elements.
    """
    heads, buckets = table_HxN.shape
    width = key_length + query_length
    distance = np.arange(width)
    distance = np.where(distance < key_length, distance, distance - width)
    bucket = position_bucket(distance, bidirectional=bidirectional, buckets=buckets, max_distance=max_distance)
    one_hot_NxW = np.eye(buckets, dtype=np.float32)[:, bucket]
    line_HxW = jnp.matmul(table_HxN.astype(jnp.float32), one_hot_NxW, precision=jax.lax.Precision.HIGHEST)
    lines_HxTW = jnp.broadcast_to(line_HxW[:, None], (heads, query_length, width)).reshape(heads, -1)
    rows = lines_HxTW[:, : query_length * (width - 1)].reshape(heads, query_length, width - 1)
    return rows[None, :, :, :key_length]
