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

from spanloom.model.attention import MASKED
from spanloom.model.pallas_attention import heads_together
from spanloom.model.remat import MIXED


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


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def attention(form: Form, given: Given) -> jax.Array:
    """Queries' mixed values, (B, T, H * D)."""
    return _forward(form, given)[0]


def _forward(form: Form, given: Given) -> tuple[jax.Array, Given]:
    mixed = _run(_mix, form, given, (), like=given.query, blocks=_blocks(form, given).query, products=2)
    return checkpoint_name(mixed, MIXED), given


def _backward(form: Form, given: Given, gradient: jax.Array) -> tuple[Given]:
    blocks, hidden = _blocks(form, given), {"asking": None, "asked": None}
    more = ((gradient, blocks.query),)
    like, blocks = given._replace(**hidden), blocks._replace(**hidden)
    return (_run(_mix_backward, form, given, more, like=like, blocks=blocks, products=5),)


attention.defvjp(_forward, _backward)


def _run(
    kernel: Any, form: Form, given: Given, more: Sequence[tuple[Any, Any]], *, like: Any, blocks: Any, products: int
) -> Any:
    """The kernel for every row of every group of heads; results are `like` those arrays, and cut into `blocks`."""
    batch, length, lanes = given.query.shape
    heads, keys = lanes // form.width, given.key.shape[1]
    results = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
    return pl.pallas_call(
        functools.partial(kernel, form),
        grid=(heads // heads_together(heads, form.width), batch),
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
    together = heads_together(lanes // form.width, form.width)
    of_queries, of_keys = (
        pl.BlockSpec((1, size, together * form.width), lambda group, row: (row, 0, group)) for size in (length, keys)
    )
    bias = pl.BlockSpec((1, together, length, keys), lambda group, row: (0, group, 0, 0))
    asking, asked = (pl.BlockSpec((1, *shape), lambda group, row: (row, 0, 0)) for shape in ((length, 1), (1, keys)))
    return Given(of_queries, of_keys, of_keys, None if given.bias is None else bias, asking, asked)


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
