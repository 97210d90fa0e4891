"""Attention as one kernel of cuDNN's (flash attention, Dao et al. 2022): no (B, H, T, S) array in memory."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from spanloom.model.attention import Mask
from spanloom.model.remat import MIXED
from spanloom.settings.model import Model

MULTIPLE = 8  # cuDNN takes even lengths beside a bias, and is fastest where rows of the bias begin at 16 bytes
WIDEST_HEAD = 128


def takes_fused(config: Model) -> bool:
    """Whether `config` means cuDNN on this machine. Raises ValueError where it asks for what cuDNN cannot do."""
    fits = config.dtype == "bfloat16" and config.d_kv % 8 == 0 and config.d_kv <= WIDEST_HEAD
    if config.attention == "cudnn" and not fits:
        raise ValueError(
            f"model.attention is cudnn, which computes in bfloat16 with heads of a width that is a multiple of 8 up to "
            f"{WIDEST_HEAD}, but model.dtype is {config.dtype} and model.d_kv {config.d_kv}: take auto or einsum"
        )
    if config.attention == "cudnn":
        return True
    return config.attention == "auto" and fits and jax.default_backend() == "gpu"


def fused_attention(
    query_BxTxHxD: jax.Array,
    key_BxSxHxD: jax.Array,
    value_BxSxHxD: jax.Array,
    bias_1xHxTxS: jax.Array | None,
    mask: Mask,
    implementation: Literal["cudnn", "xla"] = "cudnn",
) -> jax.Array:
    """`spanloom.model.attention.attention`, to the rounding of the kernel, which takes the bias in the inputs' type.

    Rows that are not packed are masked by their lengths; packed rows need the mask as part of the bias, which then has
    the batch's axis, too. `implementation` "xla" is the same call without the kernel, on any device.
    """
    length, keys = query_BxTxHxD.shape[1], key_BxSxHxD.shape[1]
    bias, visible, key_lengths_B = None, None, None
    if bias_1xHxTxS is not None:  # a float32 one gives gradients that are not numbers
        bias = _padded(bias_1xHxTxS.astype(query_BxTxHxD.dtype), 2, 3)
    if mask.key_lengths_B is None:
        visible = _padded(jnp.broadcast_to(mask.added_Bx1xTxS == 0, (len(query_BxTxHxD), 1, length, keys)), 2, 3)
    else:
        key_lengths_B = jnp.maximum(mask.key_lengths_B, 1)  # a row without text is no row without keys
    mixed = jax.nn.dot_product_attention(
        _padded(query_BxTxHxD, 1),
        _padded(key_BxSxHxD, 1),
        _padded(value_BxSxHxD, 1),
        bias,
        visible,
        scale=1.0,
        is_causal=mask.causal and visible is None,
        key_value_seq_lengths=key_lengths_B,
        implementation=implementation,
    )
    return checkpoint_name(mixed[:, :length], MIXED)


def _padded(x: jax.Array, *axes: int) -> jax.Array:
    """Zeros at the ends of the axes, up to a multiple of MULTIPLE."""
    sizes = [math.ceil(size / MULTIPLE) * MULTIPLE if axis in axes else size for axis, size in enumerate(x.shape)]
    return jnp.pad(x, [(0, wanted - size) for wanted, size in zip(sizes, x.shape, strict=True)])
