"""One more token of every sequence, with the keys and values of what is already written kept in a cache.

`ready`, `start`, `grow` and `advance` are the parts that every way of decoding is made of. Shapes as in
`spanloom.model.t5`; N is the number of layers, K the sequences that are written for each input.

Rows of the cache are never moved. Where beams take each other's place, `source` says which row wrote each token of a
beam, and attention looks there: an int32 for each token is reordered instead of its keys and values. All K queries of
an input meet all keys of the input in one product, and cross-attention's keys and values are read once for all K.

Keys lie with their width before the length, values the other way, and queries have heads before sequences: XLA has no
fast product on CPUs for the other orders, in which attention of beams took five times as long.
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

KEYS, VALUES = ("batch", "heads", "kv", "length"), ("batch", "heads", "length", "kv")
"""Axes of a layer's keys and values."""


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
    """Self-attention keys of each layer, (B, H, D, T * K) in config.dtype; zeros where nothing is written yet."""
    values: tuple[jax.Array, ...]
    """Self-attention values, likewise, (B, H, T * K, D)."""
    cross_keys: tuple[jax.Array, ...]
    """Keys of the encoder's output, (B, H, D, S)."""
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
    batch = encoder_input_tokens_BxS.shape[0]

    def project(dense: tree.Dense, *axes: str) -> jax.Array:
        heads_BxSxHxD = split_heads(jnp.einsum("bse,ef->bsf", encoded_BxSxE, dense.kernel), config)
        order = [("batch", "length", "heads", "kv").index(axis) for axis in axes]
        return place.activations(jnp.transpose(heads_BxSxHxD, order), *axes)

    def empty(axes: tuple[str, ...]) -> jax.Array:
        sizes = {"batch": batch, "heads": config.num_heads, "kv": config.d_kv, "length": room * count}
        return place.activations(jnp.zeros([sizes[axis] for axis in axes], config.dtype), *axes)

    cross = [one.layer.encoder_decoder_attention for one in weights.layers]
    own = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (batch, count, room))
    return Cache(
        keys=(empty(KEYS),) * len(cross),
        values=(empty(VALUES),) * len(cross),
        cross_keys=tuple(project(layer.key, *KEYS) for layer in cross),
        cross_values=tuple(project(layer.value, *VALUES) for layer in cross),
        cross_mask=padding_mask(encoder_input_tokens_BxS > 0),
        source=place.activations(own, "batch", "stack", "length"),
        length=jnp.zeros((), jnp.int32),
    )


def grow(cache: Cache, room: int) -> Cache:
    """The cache with room for so many tokens, at least as many as now."""
    batch, count, before = cache.source.shape
    more = room - before

    def longer(kept: tuple[jax.Array, ...], axes: tuple[str, ...]) -> tuple[jax.Array, ...]:
        padding = [(0, more * count if axis == "length" else 0) for axis in axes]
        return tuple(jnp.pad(array, padding) for array in kept)

    own = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32)[:, None], (batch, count, more))
    return replace(
        cache,
        keys=longer(cache.keys, KEYS),
        values=longer(cache.values, VALUES),
        source=jnp.concatenate([cache.source, own], axis=2),
    )


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
    write = jax.lax.dynamic_update_slice_in_dim  # in place inside a loop
    for number, one in enumerate(weights.layers):
        p = one.layer
        table = decoder.relpos_bias if p.relpos_bias is None else p.relpos_bias
        assert table is not None  # a stack has one table, or every layer has its own
        y = rms_norm(x_BxKxE, p.pre_self_attention_layer_norm, config.norm_epsilon)
        query, key, value = (_heads_first(part, config) for part in _products(y, one.inwards))
        keys.append(write(cache.keys[number], jnp.swapaxes(key, 2, 3), reach.here, axis=3))
        values.append(write(cache.values[number], value, reach.here, axis=2))
        mixed = _attention(query, keys[-1], values[-1], reach.bias(table) + reach.mask_Bx1xKxTK)
        x_BxKxE = x_BxKxE + _out(mixed, p.self_attention)
        y = rms_norm(x_BxKxE, p.pre_cross_attention_layer_norm, config.norm_epsilon)
        query = _heads_first(y @ p.encoder_decoder_attention.query.kernel, config)
        mixed = _attention(query, cache.cross_keys[number], cache.cross_values[number], cache.cross_mask)
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
        _, self._count, room = cache.source.shape
        self.here = cache.length * self._count
        """Where the keys and values of the next token come to lie."""
        places_T, rows_K = jnp.arange(room), jnp.arange(self._count, dtype=jnp.int32)
        buckets_by_age = position_bucket(
            -np.arange(room),
            bidirectional=False,
            buckets=config.relative_position_buckets,
            max_distance=config.relative_position_max_distance,
        )
        self._buckets_T = jnp.asarray(buckets_by_age)[jnp.maximum(cache.length - places_T, 0)]
        # What is written now is a sequence's own, whatever took its place before.
        self.source_BxKxT = jnp.where(places_T == cache.length, rows_K[:, None], cache.source)
        seen_BxKxTxK = (self.source_BxKxT[..., None] == rows_K) & (places_T <= cache.length)[:, None]
        mask_BxKxTxK = jnp.where(seen_BxKxTxK, 0.0, MASKED).astype(jnp.float32)
        self.mask_Bx1xKxTK = mask_BxKxTxK.reshape(*cache.source.shape[:2], -1)[:, None]
        """Of all that the sequences wrote, each sees its own tokens."""

    def bias(self, table: tree.PositionBias) -> jax.Array:
        """Position bias, float32 (H, 1, T * K)."""
        bias_HxT = table.rel_embedding.astype(jnp.float32)[:, self._buckets_T]
        return jnp.repeat(bias_HxT, self._count, axis=1)[:, None]


def _products(x_BxKxE: jax.Array, joined_ExNxF: jax.Array) -> list[jax.Array]:
    """The product with each of several kernels."""
    count = joined_ExNxF.shape[1]
    results = jnp.einsum("bke,enf->bknf", x_BxKxE, joined_ExNxF)
    return [jnp.squeeze(part, axis=2) for part in jnp.split(results, count, axis=2)]


def _heads_first(x_BxKxF: jax.Array, config: Model) -> jax.Array:
    """(B, H, K, D)."""
    return jnp.moveaxis(split_heads(x_BxKxF, config), 2, 1)


def _attention(
    query_BxHxKxD: jax.Array, keys_BxHxDxS: jax.Array, values_BxHxSxD: jax.Array, bias: jax.Array
) -> jax.Array:
    """Attention of all K sequences of an input to the same S keys, (B, K, H, D).

    `bias` is added to the logits, which are (B, H, K, S): any of its axes may be 1.
    """
    logits = jnp.einsum("bhkd,bhds->bhks", query_BxHxKxD, keys_BxHxDxS, preferred_element_type=jnp.float32)
    weights_BxHxKxS = jax.nn.softmax(logits + bias, axis=-1).astype(values_BxHxSxD.dtype)
    return jnp.moveaxis(jnp.einsum("bhks,bhsd->bhkd", weights_BxHxKxS, values_BxHxSxD), 1, 2)


def _out(mixed_BxKxHxD: jax.Array, layer: tree.Attention) -> jax.Array:
    return mixed_BxKxHxD.reshape(*mixed_BxKxHxD.shape[:2], -1) @ layer.out.kernel
