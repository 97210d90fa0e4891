"""Writing targets token by token, with the keys and values of what is already written kept in a cache.

`start`, `advance` and `Cache` are the parts that every way of decoding is made of; `greedy` is the simplest way.
Cross-attention keys and values are computed once. Shapes as in `spanloom.model.t5`; N is the number of layers.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.model.attention import MASKED, attention, padding_mask, position_bucket
from spanloom.model.layers import dense, mlp, rms_norm, split_heads
from spanloom.model.params import T5, Attention, PositionBias
from spanloom.model.t5 import embed, encode, head_logits, unstack_layers
from spanloom.settings.model import Model


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """What the decoder remembers of a batch. All but `length` have the batch on axis 1: rows are reordered there."""

    keys: jax.Array
    """Self-attention keys, (N, B, T, H, D) in config.dtype; zeros where nothing is written yet."""
    values: jax.Array
    """Self-attention values, likewise."""
    cross_keys: jax.Array
    """Keys of the encoder's output, (N, B, S, H, D)."""
    cross_values: jax.Array
    """Values of the encoder's output, (N, B, S, H, D)."""
    cross_mask: jax.Array
    """Additive mask of the encoder's padding, float32 (1, B, 1, 1, S)."""
    length: jax.Array
    """Tokens written so far, int32 scalar; the same for every row."""


class Decoded(NamedTuple):
    """What was written."""

    tokens: jax.Array
    """(B, T) int32: without start token, end of sequence kept, then 0."""
    log_probs: jax.Array
    """(B,) float32: summed log-probability of the tokens, end of sequence included, forced ones left out."""


def start(params: T5, config: Model, encoder_input_tokens_BxS: jax.Array, max_length: int) -> Cache:
    """Encode the inputs (int32, 0 is padding) and make room for `max_length` tokens."""
    encoded_BxSxE = encode(params, config, encoder_input_tokens_BxS)
    attention_layers = params.decoder.layers.encoder_decoder_attention

    def project(kernel_NxExF: jax.Array) -> jax.Array:
        projected = jnp.einsum("bse,nef->nbsf", encoded_BxSxE, kernel_NxExF.astype(encoded_BxSxE.dtype))
        return split_heads(projected, config)

    batch = encoder_input_tokens_BxS.shape[0]
    empty = jnp.zeros((config.num_decoder_layers, batch, max_length, config.num_heads, config.d_kv), config.dtype)
    return Cache(
        keys=empty,
        values=empty,
        cross_keys=project(attention_layers.key.kernel),
        cross_values=project(attention_layers.value.kernel),
        cross_mask=padding_mask(encoder_input_tokens_BxS > 0)[None],
        length=jnp.zeros((), jnp.int32),
    )


def advance(params: T5, config: Model, layers: Any, cache: Cache, tokens_B: jax.Array) -> tuple[jax.Array, Cache]:
    """Read one token of every row (0 is the start token) and say what may follow: logits (B, V) float32.

    `layers` is what `layers_for_decoding` gives. The caller sees to it that the cache has room left.
    """
    x_Bx1xE = embed(params, config, tokens_B[:, None])
    room = cache.keys.shape[2]
    mask_1x1x1xT = jnp.where(jnp.arange(room) <= cache.length, 0.0, MASKED).astype(jnp.float32)[None, None, None]

    def layer(carry: tuple[jax.Array, jax.Array, jax.Array], inputs: tuple[Any, ...]) -> tuple[Any, None]:
        x, keys, values = carry
        p, number, cross_key, cross_value = inputs
        table = params.decoder.relpos_bias if p.relpos_bias is None else p.relpos_bias
        y = rms_norm(x, p.pre_self_attention_layer_norm, config.norm_epsilon)
        keys, values = (
            _write(cached, split_heads(dense(y, part)[0], config), number, cache.length)
            for cached, part in ((keys, p.self_attention.key), (values, p.self_attention.value))
        )
        bias = _bias_of_row(table, config, room, cache.length)
        x = x + _attend(y, p.self_attention, config, keys[number], values[number], bias, mask_1x1x1xT)
        y = rms_norm(x, p.pre_cross_attention_layer_norm, config.norm_epsilon)
        cross = p.encoder_decoder_attention
        x = x + _attend(y, cross, config, cross_key, cross_value, None, cache.cross_mask[0])
        return (x + mlp(x, p.pre_mlp_layer_norm, p.mlp, config, None), keys, values), None

    carry = (x_Bx1xE, cache.keys, cache.values)
    numbers = jnp.arange(config.num_decoder_layers)
    if config.scan_layers:
        carry, _ = jax.lax.scan(layer, carry, (layers, numbers, cache.cross_keys, cache.cross_values))
    else:
        for number, p in enumerate(layers):
            carry, _ = layer(carry, (p, number, cache.cross_keys[number], cache.cross_values[number]))
    x_Bx1xE, keys, values = carry
    hidden = rms_norm(x_Bx1xE, params.decoder.decoder_norm, config.norm_epsilon)
    logits_BxV = head_logits(params, config, hidden)[:, 0]
    return logits_BxV, replace(cache, keys=keys, values=values, length=cache.length + 1)


def layers_for_decoding(params: T5, config: Model) -> Any:
    """The decoder's layers as `advance` takes them. To be called outside the loop over tokens: it may copy them."""
    layers = params.decoder.layers
    return layers if config.scan_layers else unstack_layers(layers, config.num_decoder_layers)


def greedy(
    params: T5,
    config: Model,
    encoder_input_tokens_BxS: Any,
    max_length: int,
    *,
    forced_tokens_BxT: Any = None,
    eos_id: int = 1,
) -> Decoded:
    """The likeliest token at each place, up to the end of sequence, and the log-probability of what is written.

    `forced_tokens_BxT` (B, up to max_length) holds tokens that must stand at their places, 0 where the model is free.
    A row without any input token stays 0, with log-probability 0.
    Compiled once for each shape and length. Raises ValueError for a length below 1 or too many forced tokens.
    """
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; at least 1 token must be written")
    inputs = jnp.asarray(encoder_input_tokens_BxS, jnp.int32)
    forced = np.zeros((inputs.shape[0], max_length), np.int32)
    if forced_tokens_BxT is not None:
        given = np.asarray(forced_tokens_BxT)
        if given.shape[0] != inputs.shape[0] or given.shape[1] > max_length:
            raise ValueError(
                f"forced tokens have shape {given.shape}, but there are {inputs.shape[0]} inputs and room for "
                f"{max_length} tokens; give one row an input, and no more tokens than max_length"
            )
        forced[:, : given.shape[1]] = given
    return _greedy(params, config, inputs, jnp.asarray(forced), max_length, eos_id)


class _Progress(NamedTuple):
    cache: Cache
    last: jax.Array
    done: jax.Array
    written: Decoded


@functools.partial(jax.jit, static_argnames=("config", "max_length", "eos_id"))
def _greedy(
    params: T5, config: Model, inputs_BxS: jax.Array, forced_BxT: jax.Array, max_length: int, eos_id: int
) -> Decoded:
    layers = layers_for_decoding(params, config)

    def unfinished(progress: _Progress) -> jax.Array:
        return (progress.cache.length < max_length) & ~jnp.all(progress.done)

    def write(progress: _Progress) -> _Progress:
        place = progress.cache.length
        logits_BxV, cache = advance(params, config, layers, progress.cache, progress.last)
        forced_B = jax.lax.dynamic_index_in_dim(forced_BxT, place, axis=1, keepdims=False)
        likeliest_B = jnp.argmax(logits_BxV, axis=-1).astype(jnp.int32)
        token_B = jnp.where(forced_B > 0, forced_B, likeliest_B)
        token_B = jnp.where(progress.done, 0, token_B)
        log_prob_B = jnp.max(logits_BxV, axis=-1) - jax.nn.logsumexp(logits_BxV, axis=-1)
        counts_B = ~progress.done & (forced_B == 0)
        tokens = jax.lax.dynamic_update_slice(progress.written.tokens, token_B[:, None], (0, place))
        log_probs = progress.written.log_probs + jnp.where(counts_B, log_prob_B, 0.0)
        return _Progress(cache, token_B, progress.done | (token_B == eos_id), Decoded(tokens, log_probs))

    batch = inputs_BxS.shape[0]
    nothing = Decoded(jnp.zeros((batch, max_length), jnp.int32), jnp.zeros(batch, jnp.float32))
    begin = _Progress(
        start(params, config, inputs_BxS, max_length),
        jnp.zeros(batch, jnp.int32),
        ~jnp.any(inputs_BxS > 0, axis=1),  # rows that only fill a batch up
        nothing,
    )
    return jax.lax.while_loop(unfinished, write, begin).written


def _write(cached_NxBxTxHxD: jax.Array, new_Bx1xHxD: jax.Array, layer: Any, place: jax.Array) -> jax.Array:
    """The cache with one more key or value of a layer; in place inside a loop."""
    return jax.lax.dynamic_update_slice(cached_NxBxTxHxD, new_Bx1xHxD[None], (layer, 0, place, 0, 0))


def _attend(
    x_Bx1xE: jax.Array,
    layer: Attention,
    config: Model,
    keys: jax.Array,
    values: jax.Array,
    bias: jax.Array | None,
    mask: jax.Array,
) -> jax.Array:
    query = split_heads(dense(x_Bx1xE, layer.query)[0], config)
    mixed = attention(query, keys, values, bias, mask)
    return dense(mixed.reshape(*x_Bx1xE.shape[:2], -1), layer.out)[0]


def _bias_of_row(table: PositionBias | None, config: Model, room: int, place: jax.Array) -> jax.Array:
    """Position bias of the query at `place` to every key of the cache, float32 (1, H, 1, T)."""
    assert table is not None  # a stack has one table, or every layer has its own
    buckets_by_age = position_bucket(
        -np.arange(room),
        bidirectional=False,
        buckets=config.relative_position_buckets,
        max_distance=config.relative_position_max_distance,
    )
    age_T = jnp.maximum(place - jnp.arange(room), 0)
    bias_HxT = table.rel_embedding.astype(jnp.float32)[:, jnp.asarray(buckets_by_age)[age_T]]
    return bias_HxT[None, :, None, :]
