"""One more token of every sequence, with the keys and values of what is already written kept in a cache.

`ready`, `start`, `grow` and `advance` are the parts that every way of decoding is made of. Shapes as in
`spanloom.model.t5`; N is the number of layers, K the sequences that are written for each input.

Rows of the cache are never moved. Where beams take each other's place, `source` says which row wrote each token of a
beam, and attention looks there: an int32 for each token is reordered instead of its keys and values. All K queries of
an input meet all keys of the input in one product, and cross-attention's keys and values are read once for all K.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.model import params as tree
from spanloom.model.attention import MASKED, padding_mask, position_bucket
from spanloom.model.layers import activate, rms_norm, split_heads
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.model.t5 import embed, encode, head_logits, unstack_layers
from spanloom.settings.model import Model

CACHE = ("batch", "heads", "length", "kv")
"""Axes of a layer's keys, or values."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ready:
    """A model's weights as decoding takes them: layers apart, in the type of the activations, kernels joined."""

    params: tree.T5
    """The whole model, for what is done once for each input."""
    layers: tuple["ReadyLayer", ...]
    """The decoder's layers."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ReadyLayer:
    """One layer of the decoder. Kernels that read the same activations are one array, (E, how many, F)."""

    layer: tree.DecoderLayer
    """Norms and the kernels that stand alone."""
    inwards: jax.Array
    """Query, key and value of self-attention."""
    up: jax.Array
    """Of the feed-forward layer: all but `wo`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """What the decoder remembers of a batch. T is its room."""

    keys: tuple[jax.Array, ...]
    """Self-attention keys of each layer, (B, H, T * K, D) in config.dtype; zeros where nothing is written yet."""
    values: tuple[jax.Array, ...]
    """Self-attention values, likewise."""
    cross_keys: tuple[jax.Array, ...]
    """Keys of the encoder's output, (B, H, S, D)."""
    cross_values: tuple[jax.Array, ...]
    """Values of the encoder's output, (B, H, S, D)."""
    cross_mask: jax.Array
    """Additive mask of the encoder's padding, float32 (B, 1, 1, S)."""
    source: jax.Array
    """Which row wrote the token that sequence k has at place t, int32 (B, K, T)."""
    length: jax.Array
    """Tokens written so far, int32 scalar; the same for every row."""

    @property
    def room(self) -> int:
        """Tokens that can be written in all."""
        return self.source.shape[2]


def ready(params: tree.T5, config: Model, place: Placement = ANYWHERE) -> Ready:
    """To be called outside the loop over tokens: it copies the decoder's layers."""
    specs = tree.declare(config).decoder.layers
    layers = unstack_layers(place.weights(params.decoder.layers, specs), config.num_decoder_layers)
    return Ready(params, tuple(_ready_layer(layer, config) for layer in layers))


def _ready_layer(layer: tree.DecoderLayer, config: Model) -> ReadyLayer:
    def cast(kernel: jax.Array) -> jax.Array:
        return kernel.astype(config.dtype) if kernel.ndim == 2 else kernel

    bias, layer = layer.relpos_bias, replace(layer, relpos_bias=None)
    layer = replace(jax.tree.map(cast, layer), relpos_bias=bias)
    own, mlp = layer.self_attention, layer.mlp
    up = [branch.kernel for branch in (mlp.wi, mlp.wi_0, mlp.wi_1) if branch]
    # Beside the width, not along it, so that a width that is divided among devices stays so.
    inwards = jnp.stack([own.query.kernel, own.key.kernel, own.value.kernel], axis=1)
    return ReadyLayer(layer, inwards, jnp.stack(up, axis=1))


def start(
    weights: Ready,
    config: Model,
    encoder_input_tokens_BxS: jax.Array,
    count: int,
    room: int,
    place: Placement = ANYWHERE,
) -> Cache:
    """Encode the inputs (int32, 0 is padding) and make room for `room` tokens of `count` sequences each."""
    encoded_BxSxE = encode(weights.params, config, encoder_input_tokens_BxS, place=place)

    def project(dense: tree.Dense) -> jax.Array:
        heads_BxSxHxD = split_heads(jnp.einsum("bse,ef->bsf", encoded_BxSxE, dense.kernel), config)
        return place.activations(jnp.moveaxis(heads_BxSxHxD, 2, 1), "batch", "heads", "length", "kv")

    cross = [one.layer.encoder_decoder_attention for one in weights.layers]
    batch = encoder_input_tokens_BxS.shape[0]
    empty = jnp.zeros((batch, config.num_heads, room * count, config.d_kv), config.dtype)
    empty = place.activations(empty, *CACHE)
    own = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (batch, count, room))
    return Cache(
        keys=(empty,) * len(cross),
        values=(empty,) * len(cross),
        cross_keys=tuple(project(layer.key) for layer in cross),
        cross_values=tuple(project(layer.value) for layer in cross),
        cross_mask=padding_mask(encoder_input_tokens_BxS > 0),
        source=place.activations(own, "batch", "stack", "length"),
        length=jnp.zeros((), jnp.int32),
    )


def grow(cache: Cache, room: int) -> Cache:
    """The cache with room for so many tokens, at least as many as now."""
    more = room - cache.room

    batch, count, _ = cache.source.shape

    def longer(kept_BxHxTKxD: jax.Array) -> jax.Array:
        return jnp.pad(kept_BxHxTKxD, [(0, 0), (0, 0), (0, more * count), (0, 0)])

    own = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (batch, count, more))
    keys, values = jax.tree.map(longer, (cache.keys, cache.values))
    return replace(cache, keys=keys, values=values, source=jnp.concatenate([cache.source, own], axis=2))


def reorder(cache: Cache, parents_BxK: jax.Array) -> Cache:
    """Sequence k goes on from what sequence `parents[k]` of the same input has written."""
    return replace(cache, source=jnp.take_along_axis(cache.source, parents_BxK[:, :, None], axis=1))


def advance(
    weights: Ready, config: Model, cache: Cache, tokens_BxK: jax.Array, place: Placement = ANYWHERE
) -> tuple[jax.Array, Cache]:
    """Read one token of every sequence (0 is the start token) and say what may follow: logits (B, K, V) float32.

    The caller sees to it that the cache has room left, and before each call, from the second on, has sequences take
    each other's place by `reorder`.
    """
    decoder = weights.params.decoder
    x_BxKxE = embed(weights.params, config, tokens_BxK, place)
    reach = _Reach(config, cache)
    keys, values = [], []
    for number, one in enumerate(weights.layers):
        p = one.layer
        table = decoder.relpos_bias if p.relpos_bias is None else p.relpos_bias
        assert table is not None  # a stack has one table, or every layer has its own
        y = rms_norm(x_BxKxE, p.pre_self_attention_layer_norm, config.norm_epsilon)
        query, key, value = (split_heads(part, config) for part in _products(y, one.inwards))
        keys.append(_write(cache.keys[number], key, cache.length))
        values.append(_write(cache.values[number], value, cache.length))
        mixed = _own_attention(query, keys[-1], values[-1], reach.bias(table), reach.mine_BxKxTxK)
        x_BxKxE = x_BxKxE + _out(mixed, p.self_attention)
        y = rms_norm(x_BxKxE, p.pre_cross_attention_layer_norm, config.norm_epsilon)
        query = split_heads(y @ p.encoder_decoder_attention.query.kernel, config)
        mixed = _cross_attention(query, cache.cross_keys[number], cache.cross_values[number], cache.cross_mask)
        x_BxKxE = x_BxKxE + _out(mixed, p.encoder_decoder_attention)
        y = rms_norm(x_BxKxE, p.pre_mlp_layer_norm, config.norm_epsilon)
        x_BxKxE = x_BxKxE + activate(config.activations, *_products(y, one.up)) @ p.mlp.wo.kernel
        x_BxKxE = place.activations(x_BxKxE, "batch", "stack", "embed")
    hidden_BxKxE = rms_norm(x_BxKxE, decoder.decoder_norm, config.norm_epsilon)
    logits_BxKxV = head_logits(weights.params, config, hidden_BxKxE)
    logits_BxKxV = place.activations(logits_BxKxV, "batch", "stack", "vocab")
    cache = replace(cache, keys=tuple(keys), values=tuple(values), source=reach.source_BxKxT, length=cache.length + 1)
    return logits_BxKxV, cache


class _Reach:
    """What the query of the next token sees of the cache."""

    def __init__(self, config: Model, cache: Cache) -> None:
        room = cache.room
        places_T = jnp.arange(room)
        self._mask_T = jnp.where(places_T <= cache.length, 0.0, MASKED).astype(jnp.float32)
        buckets_by_age = position_bucket(
            -np.arange(room),
            bidirectional=False,
            buckets=config.relative_position_buckets,
            max_distance=config.relative_position_max_distance,
        )
        self._buckets_T = jnp.asarray(buckets_by_age)[jnp.maximum(cache.length - places_T, 0)]
        count = cache.source.shape[1]
        rows = jnp.arange(count, dtype=jnp.int32)
        # What is written now is a sequence's own, whatever took its place before.
        self.source_BxKxT = jnp.where(places_T == cache.length, rows[:, None], cache.source)
        self.mine_BxKxTxK = self.source_BxKxT[..., None] == rows if count > 1 else None

    def bias(self, table: tree.PositionBias) -> jax.Array:
        """Position bias and mask, float32 (H, 1, T)."""
        return (table.rel_embedding.astype(jnp.float32)[:, self._buckets_T] + self._mask_T)[:, None]


def _products(x_BxKxE: jax.Array, joined_ExNxF: jax.Array) -> list[jax.Array]:
    """The product with each of several kernels."""
    count = joined_ExNxF.shape[1]
    results = jnp.einsum("bke,enf->bknf", x_BxKxE, joined_ExNxF)
    return [jnp.squeeze(part, axis=2) for part in jnp.split(results, count, axis=2)]


def _write(kept_BxHxTKxD: jax.Array, new_BxKxHxD: jax.Array, at: jax.Array) -> jax.Array:
    """The cache with one more key or value of a layer; in place inside a loop."""
    count = new_BxKxHxD.shape[1]
    new_BxHxKxD = jnp.moveaxis(new_BxKxHxD, 2, 1)
    return jax.lax.dynamic_update_slice(kept_BxHxTKxD, new_BxHxKxD, (0, 0, at * count, 0))


def _own_attention(
    query_BxKxHxD: jax.Array,
    keys_BxHxTKxD: jax.Array,
    values_BxHxTKxD: jax.Array,
    bias_Hx1xT: jax.Array,
    mine_BxKxTxK: jax.Array | None,
) -> jax.Array:
    """Attention of each sequence to its own tokens, which lie in the rows that wrote them; (B, K, H, D).

    Products are with the keys of all rows; what is not the sequence's own is left out before the softmax.
    """
    logits = jnp.einsum("bkhd,bhsd->bhks", query_BxKxHxD, keys_BxHxTKxD, preferred_element_type=jnp.float32)
    if mine_BxKxTxK is None:
        weights_BxHxKxTK = jax.nn.softmax(logits + bias_Hx1xT, axis=-1)
    else:
        mine = mine_BxKxTxK[:, None]
        logits_BxHxKxTxK = logits.reshape(*logits.shape[:3], *mine.shape[3:])
        logits = jnp.sum(jnp.where(mine, logits_BxHxKxTxK, 0.0), axis=-1)  # all but one are 0
        weights = jax.nn.softmax(logits + bias_Hx1xT, axis=-1)
        weights_BxHxKxTK = jnp.where(mine, weights[..., None], 0.0).reshape(*logits.shape[:3], -1)
    return _mix(weights_BxHxKxTK, values_BxHxTKxD)


def _cross_attention(
    query_BxKxHxD: jax.Array, keys_BxHxSxD: jax.Array, values_BxHxSxD: jax.Array, mask_Bx1x1xS: jax.Array
) -> jax.Array:
    logits = jnp.einsum("bkhd,bhsd->bhks", query_BxKxHxD, keys_BxHxSxD, preferred_element_type=jnp.float32)
    return _mix(jax.nn.softmax(logits + mask_Bx1x1xS, axis=-1), values_BxHxSxD)


def _mix(weights_BxHxKxS: jax.Array, values_BxHxSxD: jax.Array) -> jax.Array:
    return jnp.einsum("bhks,bhsd->bkhd", weights_BxHxKxS.astype(values_BxHxSxD.dtype), values_BxHxSxD)


def _out(mixed_BxKxHxD: jax.Array, layer: tree.Attention) -> jax.Array:
    return mixed_BxKxHxD.reshape(*mixed_BxKxHxD.shape[:2], -1) @ layer.out.kernel
