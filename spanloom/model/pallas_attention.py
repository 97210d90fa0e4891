"""When attention of TPUs is one kernel, and how that is divided among devices (`spanloom.model.pallas_kernels`).

The kernel is imported where it is used: Pallas takes 0.14 s to import, which most commands need not spend.
"""

from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model.attention import Mask
from spanloom.model.placement import Placement
from spanloom.settings.model import Model

LANES = 128
"""Of a register."""
ON_CHIP = {
    kind: size << 20 for kind, size in {"TPU v4": 16, "TPU v5 lite": 64, "TPU v5": 64, "TPU v6 lite": 64}.items()
}
"""Bytes that a kernel may use of the memory beside the arithmetic units (VMEM), by kind of TPU. Not v2 and v3, which do
not multiply in bfloat16 as kernels ask for it."""


def takes_pallas(config: Model, place: Placement, length: int, keys: int) -> bool:
    """Whether `config` means this kernel on the devices of `place`, for so many queries and keys.

    XLA does not divide kernels among devices: where the devices are not known, nor how to divide, there is none. Raises
    ValueError where `config` asks for the kernel on a TPU that cannot run it.
    """
    device = place.device
    if config.attention not in ("auto", "pallas"):
        return False
    if device is None or device.platform != "tpu":
        return config.attention == "pallas" and jax.default_backend() != "tpu"
    heads = heads_together(place.part("heads", config.num_heads), config.d_kv)
    needed, there = _bytes_on_chip(heads, config.d_kv, length, keys), ON_CHIP.get(device.device_kind, 0)
    fits = config.dtype == "bfloat16" and needed <= there
    if config.attention == "pallas" and not fits:
        raise ValueError(
            f"model.attention is pallas, which computes in bfloat16 on TPUs of v4 or later and has all logits of a row "
            f"on the chip: {length} queries of {keys} keys need {needed / 2**20:.0f} MiB, a {device.device_kind} has "
            f"{there >> 20} for it, and model.dtype is {config.dtype}: take auto or einsum"
        )
    return fits


def _bytes_on_chip(heads: int, width: int, length: int, keys: int) -> int:
    """Of the backward pass of so many heads together: two of the bias and of its gradient, for the next comes while one
    is worked on, and five of logits and weights; two of seven arrays of heads.
    """
    return length * keys * 4 * (4 * heads + 5) + 14 * heads * width * max(length, keys) * 2


def pallas_attention(
    query_BxTxHxD: jax.Array,
    key_BxSxHxD: jax.Array,
    value_BxSxHxD: jax.Array,
    bias_1xHxTxS: jax.Array | None,
    mask: Mask,
) -> jax.Array:
    """`spanloom.model.attention.attention`, to rounding. On other devices than TPUs it is interpreted, slowly."""
    from spanloom.model.pallas_kernels import Form, Given, attention

    device = mask.place.device
    form = Form(query_BxTxHxD.shape[-1], mask.causal, ON_CHIP.get(device.device_kind) if device else None)
    asking_BxT = mask.query_numbers_BxT
    if asking_BxT is None:
        asking_BxT = jnp.ones(query_BxTxHxD.shape[:2], jnp.int32)

    def own(query: jax.Array, key: jax.Array, value: jax.Array, asking: Any, asked: Any, *bias: Any) -> jax.Array:
        query_BxTxHD, key_BxSxHD, value_BxSxHD = (x.reshape(*x.shape[:2], -1) for x in (query, key, value))
        some_bias = bias[0] if bias else None
        given = Given(query_BxTxHD, key_BxSxHD, value_BxSxHD, some_bias, asking[:, :, None], asked[:, None])
        return attention(form, given).reshape(query.shape)

    heads, rows = ("batch", "length", "heads", "kv"), ("batch", "length")
    biases = () if bias_1xHxTxS is None else ((bias_1xHxTxS, ("length", "heads", "length", "length")),)
    return mask.place.on_each_device(
        own,
        (query_BxTxHxD, heads),
        (key_BxSxHxD, heads),
        (value_BxSxHxD, heads),
        (asking_BxT, rows),
        (mask.key_numbers_BxS, rows),
        *biases,
    )


def heads_together(heads: int, width: int) -> int:
    """The fewest heads that make whole registers, or all."""
    return next((count for count in range(1, heads) if heads % count == 0 and count * width % LANES == 0), heads)
