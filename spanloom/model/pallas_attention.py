"""Attention as one kernel of TPUs, in Pallas: the logits and weights of a head never leave the chip.

T5's rows are short: all logits of a head and a row fit on the chip. So there are no tiles with running maxima, as in
FlashAttention (Dao et al. 2022): a softmax is taken over whole rows, the backward pass computes it again, and nothing
is kept for it but what was given. The gradient of the bias is summed over the batch where it is made.

Heads narrower than a register's 128 lanes come several at a time, G of them; a product for one of them takes the others
as zeros, which costs nothing, as the matrix unit is as wide.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from spanloom.model.attention import MASKED, Mask
from spanloom.model.placement import Placement
from spanloom.model.remat import MIXED
from spanloom.settings.model import Model

LANES = 128
ON_CHIP = {
    kind: size << 20 for kind, size in {"TPU v4": 16, "TPU v5 lite": 64, "TPU v5": 64, "TPU v6 lite": 64}.items()
}
"""Bytes that a kernel may use of the memory beside the arithmetic units (VMEM), by kind of TPU. Not v2 and v3, which do
not multiply in bfloat16 as kernels ask for it."""


class Form(NamedTuple):
    """What a kernel is made for."""

    width: int
    """Of a head."""
    causal: bool
    """Whether later keys are hidden."""
    on_chip: int | None
    """Bytes that it may use; None: JAX runs it step by step instead of compiling it, on any device."""


class Given(NamedTuple):
    """What attention is computed of, or blocks of it, or what any of it looks like."""

    query: Any  # (B, T, H * D)
    key: Any  # (B, S, H * D)
    value: Any
    bias: Any  # (1, H, T, S) float32, or None
    asking: Any  # (B, T, 1) and (B, 1, S) int32: a query sees keys of its own number
    asked: Any


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
    heads = _heads_together(place.part("heads", config.num_heads), config.d_kv)
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
    keep_BxSxHx1: jax.Array | None = None,
) -> jax.Array:
    """`spanloom.model.attention.attention`, to rounding. On other devices than TPUs it is interpreted, slowly."""
    if keep_BxSxHx1 is not None:
        value_BxSxHxD = value_BxSxHxD * keep_BxSxHx1
    device = mask.place.device
    form = Form(query_BxTxHxD.shape[-1], mask.causal, ON_CHIP.get(device.device_kind) if device else None)
    asking_BxT = mask.query_numbers_BxT
    if asking_BxT is None:
        asking_BxT = jnp.ones(query_BxTxHxD.shape[:2], jnp.int32)

    def own(query: jax.Array, key: jax.Array, value: jax.Array, asking: Any, asked: Any, *bias: Any) -> jax.Array:
        query_BxTxHD, key_BxSxHD, value_BxSxHD = (x.reshape(*x.shape[:2], -1) for x in (query, key, value))
        some_bias = bias[0] if bias else None
        given = Given(query_BxTxHD, key_BxSxHD, value_BxSxHD, some_bias, asking[:, :, None], asked[:, None])
        return _attention(form, given).reshape(query.shape)

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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(form: Form, given: Given) -> jax.Array:
    return _forward(form, given)[0]


def _forward(form: Form, given: Given) -> tuple[jax.Array, Given]:
    mixed = _run(_mix, form, given, (), like=given.query, blocks=_blocks(form, given).query, products=2)
    return checkpoint_name(mixed, MIXED), given


def _backward(form: Form, given: Given, gradient: jax.Array) -> tuple[Given]:
    blocks, hidden = _blocks(form, given), {"asking": None, "asked": None}
    more = ((gradient, blocks.query),)
    like, blocks = given._replace(**hidden), blocks._replace(**hidden)
    return (_run(_mix_backward, form, given, more, like=like, blocks=blocks, products=5),)


_attention.defvjp(_forward, _backward)


def _run(
    kernel: Any, form: Form, given: Given, more: Sequence[tuple[Any, Any]], *, like: Any, blocks: Any, products: int
) -> Any:
    """The kernel for every row of every group of heads; results are `like` those arrays, and cut into `blocks`."""
    batch, length, lanes = given.query.shape
    heads, keys = lanes // form.width, given.key.shape[1]
    results = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
    return pl.pallas_call(
        functools.partial(kernel, form),
        grid=(heads // _heads_together(heads, form.width), batch),
        in_specs=[_blocks(form, given), *(block for _, block in more)],
        out_specs=blocks,
        out_shape=results,
        cost_estimate=pl.CostEstimate(
            flops=products * 2 * batch * lanes * length * keys,
            transcendentals=batch * heads * length * keys,
            bytes_accessed=0,  # beyond operands and results, which XLA counts itself
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"), vmem_limit_bytes=form.on_chip
        ),
        interpret=form.on_chip is None,
    )(given, *(x for x, _ in more))


def _blocks(form: Form, given: Given) -> Given:
    """What a kernel has on the chip at a time: one row of a group of heads. The group's bias stays for all rows."""
    (_, length, lanes), keys = given.query.shape, given.key.shape[1]
    together = _heads_together(lanes // form.width, form.width)
    of_queries, of_keys = (
        pl.BlockSpec((1, size, together * form.width), lambda group, row: (row, 0, group)) for size in (length, keys)
    )
    bias = pl.BlockSpec((1, together, length, keys), lambda group, row: (0, group, 0, 0))
    asking, asked = (pl.BlockSpec((1, *shape), lambda group, row: (row, 0, 0)) for shape in ((length, 1), (1, keys)))
    return Given(of_queries, of_keys, of_keys, None if given.bias is None else bias, asking, asked)


def _heads_together(heads: int, width: int) -> int:
    """The fewest heads that make whole registers, or all."""
    return next((count for count in range(1, heads) if heads % count == 0 and count * width % LANES == 0), heads)


# ---- On the chip: references to blocks, shapes without the batch's axis ---------------------------------------------


def _mix(form: Form, given: Given, mixed_ref: Any) -> None:
    """The forward pass."""
    hidden_TxS, mixed_TxGD = _hidden(form, given), jnp.zeros(mixed_ref.shape[1:], jnp.float32)
    for head in range(given.query.shape[2] // form.width):
        powers_TxS, total_Tx1 = _powers(form, given, head, hidden_TxS)
        own = _dot(powers_TxS.astype(given.value.dtype), given.value[0], 1, 0) / total_Tx1
        mixed_TxGD = jnp.where(_of_head(form, head, own), own, mixed_TxGD)
    mixed_ref[0] = mixed_TxGD.astype(mixed_ref.dtype)


def _mix_backward(form: Form, given: Given, gradient_ref: Any, *results: Any) -> None:
    """The backward pass: d logits = weights * (d weights - sum over keys of weights * d weights)."""
    found, dtype, hidden_TxS = Given(*results), given.value.dtype, _hidden(form, given)
    query_TxGD, key_SxGD, value_SxGD = (
        jnp.zeros(ref.shape[1:], jnp.float32) for ref in (found.query, found.key, found.value)
    )
    if given.bias is not None:
        pl.when(pl.program_id(1) == 0)(functools.partial(_clear, found.bias))
    for head in range(given.query.shape[2] // form.width):
        powers_TxS, total_Tx1 = _powers(form, given, head, hidden_TxS)
        weights_TxS, gradient = powers_TxS * (1 / total_Tx1), _only(form, head, gradient_ref)
        towards_TxS = _dot(gradient, given.value[0], 1, 1)
        logits_TxS = weights_TxS * (towards_TxS - jnp.sum(weights_TxS * towards_TxS, axis=1, keepdims=True))
        if given.bias is not None:
            found.bias[0, head] += logits_TxS
        logits_TxS = logits_TxS.astype(dtype)
        own = _dot(logits_TxS, given.key[0], 1, 0)
        query_TxGD = jnp.where(_of_head(form, head, own), own, query_TxGD)
        key_SxGD += _dot(logits_TxS, _only(form, head, given.query), 0, 0)
        value_SxGD += _dot(weights_TxS.astype(dtype), gradient, 0, 0)
    for ref, x in zip(found, (query_TxGD, key_SxGD, value_SxGD), strict=False):
        ref[0] = x.astype(ref.dtype)


def _powers(form: Form, given: Given, head: int, hidden_TxS: jax.Array) -> tuple[jax.Array, jax.Array]:
    """exp(logits - their maximum) (T, S) of a head of the group, and their sums (T, 1), float32."""
    logits_TxS = _dot(_only(form, head, given.query), given.key[0], 1, 1)
    logits_TxS = logits_TxS + hidden_TxS if given.bias is None else logits_TxS + given.bias[0, head] + hidden_TxS
    powers_TxS = jnp.exp(logits_TxS - jnp.max(logits_TxS, axis=1, keepdims=True))
    return powers_TxS, jnp.sum(powers_TxS, axis=1, keepdims=True)


def _hidden(form: Form, given: Given) -> jax.Array:
    """What is added to logits (T, S): 0, or MASKED."""
    visible = given.asking[0] == given.asked[0]
    if form.causal:
        query, key = (jax.lax.broadcasted_iota(jnp.int32, visible.shape, axis) for axis in (0, 1))
        visible &= query >= key
    return jnp.where(visible, 0.0, MASKED)


def _of_head(form: Form, head: int, x: jax.Array) -> jax.Array:
    """Which lanes are the head's, (1, G * D)."""
    return jax.lax.broadcasted_iota(jnp.int32, (1, x.shape[1]), 1) // form.width == head


def _only(form: Form, head: int, ref: Any) -> jax.Array:
    """A row of a group of heads, zeros in place of all but one."""
    x = ref[0]
    return x if x.shape[1] == form.width else jnp.where(_of_head(form, head, x), x, jnp.zeros_like(x))


def _clear(ref: Any) -> None:
    ref[...] = jnp.zeros_like(ref)


def _dot(a: jax.Array, b: jax.Array, axis_a: int, axis_b: int) -> jax.Array:
    """Matrix product in float32 over one axis of each."""
    return jax.lax.dot_general(a, b, (((axis_a,), (axis_b,)), ((), ())), preferred_element_type=jnp.float32)
