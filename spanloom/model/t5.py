"""The T5 encoder-decoder (Raffel et al. 2020) in plain JAX, number for number T5X's.

Legend of the shapes in names: B batch, S encoder length, T decoder length (L either), E d_model, H heads, D d_kv,
F d_ff, V vocabulary, N buckets. Norms come before each block, residuals after; there are no biases. Padding is id 0.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model import params as tree
from spanloom.model.attention import Mask, make_mask, position_bias
from spanloom.model.layers import attend, dropout, mlp, rms_norm, subkey
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.model.remat import in_turn, rematerialized, rematerialized_in_place
from spanloom.settings.model import Model

Batch = Mapping[str, Any]
RESIDUAL = ("batch", "length", "embed")
"""Axes of the residual stream."""


def encode(
    params: tree.T5,
    config: Model,
    encoder_input_tokens_BxS: jax.Array,
    *,
    encoder_segment_ids: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
    place: Placement = ANYWHERE,
) -> jax.Array:
    """Encoder output (B, S, E) in config.dtype. Values at padding mean nothing. Dropout only with a key."""
    embedded = embed(params, config, encoder_input_tokens_BxS, place)
    return _encode(params.encoder, config, embedded, encoder_input_tokens_BxS, encoder_segment_ids, dropout_key, place)


def decode(
    params: tree.T5,
    config: Model,
    encoded_BxSxE: jax.Array,
    encoder_input_tokens_BxS: jax.Array,
    decoder_input_tokens_BxT: jax.Array,
    decoder_target_tokens_BxT: jax.Array,
    *,
    encoder_segment_ids: jax.Array | None = None,
    decoder_segment_ids: jax.Array | None = None,
    dropout_key: jax.Array | None = None,
    place: Placement = ANYWHERE,
) -> jax.Array:
    """Decoder output (B, T, E) after its last norm, in config.dtype, for known targets; `head_logits` comes next."""
    embedded = embed(params, config, decoder_input_tokens_BxT, place)
    tokens = (encoder_input_tokens_BxS, decoder_target_tokens_BxT)
    segments = (encoder_segment_ids, decoder_segment_ids)
    return _decode(params.decoder, config, encoded_BxSxE, embedded, tokens, segments, dropout_key, place)


def hidden_states(
    params: tree.T5,
    config: Model,
    batch: Batch,
    dropout_key: jax.Array | None = None,
    place: Placement = ANYWHERE,
) -> jax.Array:
    """Decoder output (B, T, E) for a batch: `encode`, then `decode`."""
    inputs, targets = batch["encoder_input_tokens"], batch["decoder_target_tokens"]
    # One gather for both stacks: its gradient fills the (V, E) table once instead of twice.
    both = embed(params, config, jnp.concatenate([inputs, batch["decoder_input_tokens"]], axis=1), place)
    embedded_inputs, embedded_targets = jnp.split(both, [inputs.shape[1]], axis=1)
    segments = (batch.get("encoder_segment_ids"), batch.get("decoder_segment_ids"))
    encoded = _encode(params.encoder, config, embedded_inputs, inputs, segments[0], dropout_key, place)
    return _decode(params.decoder, config, encoded, embedded_targets, (inputs, targets), segments, dropout_key, place)


def forward(params: tree.T5, config: Model, batch: Batch, dropout_key: jax.Array | None = None) -> jax.Array:
    """Logits (B, T, V) float32 of a batch, for small ones: `spanloom.model.loss` never makes them whole.

    The batch has `encoder_input_tokens`, `decoder_input_tokens`, `decoder_target_tokens` and, if packed,
    `encoder_segment_ids` and `decoder_segment_ids`.
    """
    return head_logits(params, config, hidden_states(params, config, batch, dropout_key))


def embed(params: tree.T5, config: Model, tokens_BxL: jax.Array, place: Placement = ANYWHERE) -> jax.Array:
    """Embedding of tokens, (B, L, E) in config.dtype, not scaled. Ids beyond the table give NaN, to be noticed."""
    table_VxE = place.weights(params.token_embedder, tree.declare(config).token_embedder).embedding
    embedded = jnp.take(table_VxE, tokens_BxL, axis=0, mode="fill").astype(config.dtype)
    return place.activations(embedded, *RESIDUAL)


def head_logits(params: tree.T5, config: Model, hidden_BxTxE: jax.Array) -> jax.Array:
    """Logits (B, T, V), computed in float32 whatever the type of the activations."""
    hidden32 = hidden_BxTxE.astype(jnp.float32)
    if params.decoder.logits_dense is not None:
        return hidden32 @ params.decoder.logits_dense.kernel
    hidden32 = hidden32 / jnp.sqrt(jnp.float32(config.d_model))
    return jnp.einsum("bte,ve->btv", hidden32, params.token_embedder.embedding)


def stack_bias(
    table: tree.PositionBias | None, config: Model, query_length: int, key_length: int, *, bidirectional: bool
) -> jax.Array | None:
    """Relative-position bias (1, H, T, S) from a stack's table, or from a layer's; None without a table."""
    if table is None:
        return None
    return position_bias(
        table.rel_embedding,
        query_length,
        key_length,
        bidirectional=bidirectional,
        max_distance=config.relative_position_max_distance,
    )


def encoder_layer(
    x_BxSxE: jax.Array,
    p: tree.EncoderLayer,
    config: Model,
    shared_bias: jax.Array | None,
    mask: Mask,
    key: jax.Array | None = None,
) -> jax.Array:
    """One layer of the encoder: self-attention, then feed-forward. `shared_bias`: of a stack with one table."""
    length = x_BxSxE.shape[1]
    own_bias = stack_bias(p.relpos_bias, config, length, length, bidirectional=True)
    bias = shared_bias if own_bias is None else own_bias
    y = attend(x_BxSxE, p.pre_attention_layer_norm, None, p.attention, config, bias, mask, subkey(key, 0))
    x_BxSxE = x_BxSxE + dropout(y, subkey(key, 1), config.dropout)
    y = mlp(x_BxSxE, p.pre_mlp_layer_norm, p.mlp, config, subkey(key, 2))
    return x_BxSxE + dropout(y, subkey(key, 3), config.dropout)


def decoder_layer(
    x_BxTxE: jax.Array,
    encoded_BxSxE: jax.Array,
    p: tree.DecoderLayer,
    config: Model,
    shared_bias: jax.Array | None,
    masks: tuple[Mask, Mask],
    key: jax.Array | None = None,
) -> jax.Array:
    """One layer of the decoder: self-attention, attention to the encoder, feed-forward; `masks` of the first two."""
    (mask, cross_mask), length = masks, x_BxTxE.shape[1]
    own_bias = stack_bias(p.relpos_bias, config, length, length, bidirectional=False)
    bias = shared_bias if own_bias is None else own_bias
    y = attend(x_BxTxE, p.pre_self_attention_layer_norm, None, p.self_attention, config, bias, mask, subkey(key, 0))
    x_BxTxE = x_BxTxE + dropout(y, subkey(key, 1), config.dropout)
    norm, cross = p.pre_cross_attention_layer_norm, p.encoder_decoder_attention
    y = attend(x_BxTxE, norm, encoded_BxSxE, cross, config, None, cross_mask, subkey(key, 2))
    x_BxTxE = x_BxTxE + dropout(y, subkey(key, 3), config.dropout)
    y = mlp(x_BxTxE, p.pre_mlp_layer_norm, p.mlp, config, subkey(key, 4))
    return x_BxTxE + dropout(y, subkey(key, 5), config.dropout)


def _encode(
    encoder: tree.Encoder,
    config: Model,
    x_BxSxE: jax.Array,
    tokens_BxS: jax.Array,
    segments_BxS: jax.Array | None,
    dropout_key: jax.Array | None,
    place: Placement,
) -> jax.Array:
    key, length = subkey(dropout_key, 0), tokens_BxS.shape[1]
    real = _real(tokens_BxS, segments_BxS)
    mask = make_mask(real, segments_BxS, segments_BxS, place=place)
    shared_bias = stack_bias(encoder.relpos_bias, config, length, length, bidirectional=True)

    specs = tree.declare(config).encoder.layers

    def layer(x: jax.Array, p: tree.EncoderLayer, number: Any) -> jax.Array:
        y = encoder_layer(x, place.weights(p, specs), config, shared_bias, mask, subkey(key, number))
        return place.activations(y, *RESIDUAL)

    outside = subkey(dropout_key, 2)
    x_BxSxE = dropout(x_BxSxE, subkey(outside, 0), config.dropout)
    x_BxSxE = _run(layer, x_BxSxE, encoder.layers, config.num_encoder_layers, config)
    x_BxSxE = rms_norm(x_BxSxE, encoder.encoder_norm, config.norm_epsilon)
    return dropout(x_BxSxE, subkey(outside, 1), config.dropout, same_along_length=False)


def _real(tokens_BxL: jax.Array, segments_BxL: jax.Array | None) -> jax.Array:
    """Which positions hold text, not padding. Packed rows say so themselves: an id of 0 may stand inside of a text."""
    return tokens_BxL > 0 if segments_BxL is None else segments_BxL > 0


def _decode(
    decoder: tree.Decoder,
    config: Model,
    encoded_BxSxE: jax.Array,
    x_BxTxE: jax.Array,
    tokens: tuple[jax.Array, jax.Array],
    segments: tuple[jax.Array | None, jax.Array | None],
    dropout_key: jax.Array | None,
    place: Placement,
) -> jax.Array:
    (inputs_BxS, targets_BxT), (encoder_segments, decoder_segments) = tokens, segments
    key, length = subkey(dropout_key, 1), targets_BxT.shape[1]
    masked = functools.partial(make_mask, place=place)
    mask = masked(_real(targets_BxT, decoder_segments), decoder_segments, decoder_segments, causal=True)
    cross_mask = masked(_real(inputs_BxS, encoder_segments), decoder_segments, encoder_segments)
    shared_bias = stack_bias(decoder.relpos_bias, config, length, length, bidirectional=False)

    specs = tree.declare(config).decoder.layers

    def layer(x: jax.Array, p: tree.DecoderLayer, number: Any) -> jax.Array:
        k, masks = subkey(key, number), (mask, cross_mask)
        y = decoder_layer(x, encoded_BxSxE, place.weights(p, specs), config, shared_bias, masks, k)
        return place.activations(y, *RESIDUAL)

    outside = subkey(dropout_key, 3)
    x_BxTxE = dropout(x_BxTxE, subkey(outside, 0), config.dropout)
    x_BxTxE = _run(layer, x_BxTxE, decoder.layers, config.num_decoder_layers, config)
    x_BxTxE = rms_norm(x_BxTxE, decoder.decoder_norm, config.norm_epsilon)
    return dropout(x_BxTxE, subkey(outside, 1), config.dropout)


def _run(layer: Callable[..., jax.Array], x: jax.Array, stacked: Any, depth: int, config: Model) -> jax.Array:
    """Apply `layer(x, its parameters, its number)` for every layer: one compiled loop, or one after the other."""
    if config.scan_layers:
        layer = rematerialized(layer, config)
        return jax.lax.scan(lambda x, p: (layer(x, *p), None), x, (stacked, jnp.arange(depth)))[0]
    layer = rematerialized_in_place(layer, config, stacked)
    layers = unstack_layers(stacked, depth)
    for number in range(depth):
        if number + 1 < depth:
            x, layers[number + 1] = in_turn(x, layers[number + 1])
        x = layer(x, layers[number], number)
    return x


def unstack_layers(stacked: Any, depth: int) -> list[Any]:
    """The layers of a stack, one tree each. Their gradient is one concatenation, not a sum of padded arrays."""
    leaves, structure = jax.tree.flatten(stacked)
    pieces = [jax.lax.split(leaf, [1] * depth, axis=0) for leaf in leaves]
    return [jax.tree.unflatten(structure, [jnp.squeeze(piece[i], axis=0) for piece in pieces]) for i in range(depth)]
