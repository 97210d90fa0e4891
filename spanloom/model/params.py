"""The parameters of a model, declared once as a tree of `ParamSpec`.

Initialisation, counting, naming, and in other rooms sharding, factoring and conversion, are maps over that tree.
Parameters are pytrees of stdlib dataclasses under T5X's names; the layers of a stack are stacked on axis 0:
`encoder/layers/attention/query/kernel` has shape (layers, d_model, heads * d_kv).
"""

import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spanloom.settings.model import Model

Leaf = Any  # a ParamSpec, an array, or whatever a map over the tree makes of it
Flat = dict[str, Any]


@dataclass(frozen=True)
class Init:
    """A distribution of initial values. `scale` is the standard deviation, or the bound of a uniform one."""

    kind: str
    scale: float = 1.0


@dataclass(frozen=True)
class ParamSpec:
    """One parameter: shape, the name of each axis (T5X's logical axes), initial distribution. A leaf of the tree."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    init: Init


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Embedding:
    """Token embedding: (vocab_size, d_model)."""

    embedding: Leaf


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Norm:
    """RMS layer norm: scale (d_model,)."""

    scale: Leaf


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """Matrix without bias: (in, out)."""

    kernel: Leaf


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PositionBias:
    """Relative-position table: (heads, buckets)."""

    rel_embedding: Leaf


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Attention:
    """Query, key and value (d_model, heads * d_kv), out (heads * d_kv, d_model)."""

    query: Dense
    key: Dense
    value: Dense
    out: Dense


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class MLP:
    """Feed-forward layer: `wi` alone (T5 1.0), or `wi_0` gated by `wi_1` (T5 1.1)."""

    wi: Dense | None
    wi_0: Dense | None
    wi_1: Dense | None
    wo: Dense


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EncoderLayer:
    """All layers of the encoder, stacked on axis 0, or one of them."""

    pre_attention_layer_norm: Norm
    attention: Attention
    pre_mlp_layer_norm: Norm
    mlp: MLP
    relpos_bias: PositionBias | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DecoderLayer:
    """All layers of the decoder, stacked on axis 0, or one of them."""

    pre_self_attention_layer_norm: Norm
    self_attention: Attention
    pre_cross_attention_layer_norm: Norm
    encoder_decoder_attention: Attention
    pre_mlp_layer_norm: Norm
    mlp: MLP
    relpos_bias: PositionBias | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Encoder:
    """Encoder; the position table is here unless every layer has one of its own."""

    layers: EncoderLayer
    encoder_norm: Norm
    relpos_bias: PositionBias | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Decoder:
    """Decoder; `logits_dense` (d_model, vocab_size) is absent where the head shares the embedding."""

    layers: DecoderLayer
    decoder_norm: Norm
    relpos_bias: PositionBias | None
    logits_dense: Dense | None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class T5:
    """A whole model."""

    token_embedder: Embedding
    encoder: Encoder
    decoder: Decoder


def declare(config: Model) -> T5:
    """The parameters of `config` as a tree of `ParamSpec`, with T5X's initial distributions.

    Raises ValueError, naming the setting, where the settings describe no model.
    """
    check(config)
    d = config
    embedding = ParamSpec((d.vocab_size, d.d_model), ("vocab", "embed"), Init("normal", 1.0))
    encoder_layers = EncoderLayer(
        pre_attention_layer_norm=_norm(d, d.num_encoder_layers),
        attention=_attention(d, d.num_encoder_layers),
        pre_mlp_layer_norm=_norm(d, d.num_encoder_layers),
        mlp=_mlp(d, d.num_encoder_layers),
        relpos_bias=_position_bias(d, d.num_encoder_layers) if d.per_layer_position_bias else None,
    )
    decoder_layers = DecoderLayer(
        pre_self_attention_layer_norm=_norm(d, d.num_decoder_layers),
        self_attention=_attention(d, d.num_decoder_layers),
        pre_cross_attention_layer_norm=_norm(d, d.num_decoder_layers),
        encoder_decoder_attention=_attention(d, d.num_decoder_layers),
        pre_mlp_layer_norm=_norm(d, d.num_decoder_layers),
        mlp=_mlp(d, d.num_decoder_layers),
        relpos_bias=_position_bias(d, d.num_decoder_layers) if d.per_layer_position_bias else None,
    )
    shared_bias = None if d.per_layer_position_bias else _position_bias(d)
    head = None if d.tie_embeddings else _dense(d.d_model, d.vocab_size, ("embed", "vocab"), "truncated_normal")
    return T5(
        token_embedder=Embedding(embedding),
        encoder=Encoder(layers=encoder_layers, encoder_norm=_norm(d), relpos_bias=shared_bias),
        decoder=Decoder(layers=decoder_layers, decoder_norm=_norm(d), relpos_bias=shared_bias, logits_dense=head),
    )


def check(config: Model) -> None:
    """Raise ValueError, naming the setting and what it may be, where `config` describes no model."""
    sizes = ("vocab_size", "d_model", "d_ff", "num_heads", "d_kv", "num_encoder_layers", "num_decoder_layers")
    for name in sizes:
        if getattr(config, name) < 1:
            raise ValueError(f"model.{name} is {getattr(config, name)}; it must be at least 1")
    known = ("gelu", "relu", "silu", "linear")
    if len(config.activations) not in (1, 2) or any(name not in known for name in config.activations):
        raise ValueError(f"model.activations is {config.activations}; give one or two of {', '.join(known)}")
    if not 0 <= config.dropout < 1:
        raise ValueError(f"model.dropout is {config.dropout}; it must be at least 0 and below 1")
    if config.dtype not in ("float32", "bfloat16"):
        raise ValueError(f"model.dtype is {config.dtype!r}; it must be 'float32' or 'bfloat16'")
    buckets, distance = config.relative_position_buckets, config.relative_position_max_distance
    if buckets < 4 or buckets % 2 or distance <= buckets // 2:
        raise ValueError(
            f"model.relative_position_buckets is {buckets} and relative_position_max_distance {distance}; "
            "buckets must be even and at least 4, and the distance more than half of them"
        )


def _stacked(shape: tuple[int, ...], axes: tuple[str, ...], init: Init, layers: int | None) -> ParamSpec:
    return ParamSpec(shape, axes, init) if layers is None else ParamSpec((layers, *shape), ("layers", *axes), init)


def _dense(
    fan_in: int, fan_out: int, axes: tuple[str, str], kind: str, layers: int | None = None, shrink: float = 1.0
) -> Dense:
    # Variance 1 / fan_in, that of a layer's own matrix: the stacking axis does not count.
    return Dense(_stacked((fan_in, fan_out), axes, Init(kind, shrink / math.sqrt(fan_in)), layers))


def _norm(config: Model, layers: int | None = None) -> Norm:
    return Norm(_stacked((config.d_model,), ("embed",), Init("ones"), layers))


def _attention(config: Model, layers: int) -> Attention:
    width, inner = config.d_model, config.num_heads * config.d_kv
    inwards, outwards = ("embed", "joined_kv"), ("joined_kv", "embed")
    return Attention(
        # The division of the logits by sqrt(d_kv) is folded into the query's initial values.
        query=_dense(width, inner, inwards, "normal", layers, shrink=1 / math.sqrt(config.d_kv)),
        key=_dense(width, inner, inwards, "normal", layers),
        value=_dense(width, inner, inwards, "normal", layers),
        out=_dense(inner, width, outwards, "normal", layers),
    )


def _mlp(config: Model, layers: int) -> MLP:
    up = _dense(config.d_model, config.d_ff, ("embed", "mlp"), "truncated_normal", layers)
    down = _dense(config.d_ff, config.d_model, ("mlp", "embed"), "truncated_normal", layers)
    gated = len(config.activations) == 2
    return MLP(wi=None if gated else up, wi_0=up if gated else None, wi_1=up if gated else None, wo=down)


def _position_bias(config: Model, layers: int | None = None) -> PositionBias:
    heads, buckets = config.num_heads, config.relative_position_buckets
    bound = math.sqrt(3 / ((heads + buckets) / 2))
    return PositionBias(_stacked((heads, buckets), ("heads", "relpos_buckets"), Init("uniform", bound), layers))


def initialize(specs: Any, key: jax.Array) -> Any:
    """Random float32 arrays for a tree of `ParamSpec`. Each depends on `key` and the parameter's name alone."""

    def make(path: Any, spec: ParamSpec) -> jax.Array:
        return _draw(spec, jax.random.fold_in(key, zlib.crc32(path_name(path).encode())))

    return jax.tree_util.tree_map_with_path(make, specs)


def _draw(spec: ParamSpec, key: jax.Array) -> jax.Array:
    scale = spec.init.scale
    match spec.init.kind:
        case "ones":
            return jnp.ones(spec.shape, jnp.float32)
        case "normal":
            return scale * jax.random.normal(key, spec.shape, jnp.float32)
        case "truncated_normal":
            # The standard deviation of a normal cut off at two standard deviations.
            cut = 0.87962566103423978
            return (scale / cut) * jax.random.truncated_normal(key, -2.0, 2.0, spec.shape, jnp.float32)
        case "uniform":
            return jax.random.uniform(key, spec.shape, jnp.float32, -scale, scale)
    raise ValueError(f"no initial distribution is called {spec.init.kind!r}")


def num_params(tree: Any) -> int:
    """How many numbers a tree of `ParamSpec` or of arrays holds."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def path_name(path: Any) -> str:
    """T5X's name of a leaf, from its path in the tree: 'encoder/encoder_norm/scale'."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def flatten(tree: Any) -> Flat:
    """Leaves by T5X's name, layers stacked on axis 0: 'encoder/layers/mlp/wo/kernel'."""
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def unflatten(config: Model, flat: Mapping[str, Any]) -> T5:
    """The tree of `flatten`. Raises ValueError naming what is missing, left over or of another shape."""
    specs = declare(config)
    wanted = flatten(specs)
    missing, extra = sorted(wanted.keys() - flat.keys()), sorted(flat.keys() - wanted.keys())
    if missing or extra:
        raise ValueError(
            f"these are not the parameters of model {config.name!r}: missing {missing[:5]}, unexpected {extra[:5]}; "
            "check the model's settings against the checkpoint's"
        )
    for name, spec in wanted.items():
        if tuple(flat[name].shape) != spec.shape:
            raise ValueError(
                f"{name} has shape {tuple(flat[name].shape)}, but model {config.name!r} needs {spec.shape}; "
                "check the model's settings against the checkpoint's"
            )
    return jax.tree.unflatten(jax.tree.structure(specs), [flat[name] for name in wanted])


def unstack(flat: Mapping[str, Any]) -> Flat:
    """Stacked names to T5X's unscanned ones: encoder/layers/... (L, ...) to encoder/layers_0/..., one a layer."""
    result: Flat = {}
    for name, leaf in flat.items():
        if "/layers/" not in name:
            result[name] = leaf
            continue
        for layer in range(leaf.shape[0]):
            result[name.replace("/layers/", f"/layers_{layer}/", 1)] = leaf[layer]
    return result


_LAYER = re.compile(r"/layers_(\d+)/")


def stack(flat: Mapping[str, Any]) -> Flat:
    """The inverse of `unstack`. Raises ValueError if a layer lacks a parameter that another one has."""
    result: Flat = {}
    layers: dict[str, dict[int, Any]] = {}
    for name, leaf in flat.items():
        if match := _LAYER.search(name):
            layers.setdefault(_LAYER.sub("/layers/", name, count=1), {})[int(match[1])] = leaf
        else:
            result[name] = leaf
    for name, leaves in layers.items():
        depth = max(max(found) for other, found in layers.items() if other.split("/")[0] == name.split("/")[0]) + 1
        if sorted(leaves) != list(range(depth)):
            absent = sorted(set(range(depth)) - set(leaves))
            raise ValueError(f"{name} is missing in layers {absent} of {depth}; the checkpoint is incomplete")
        result[name] = _stack_arrays([leaves[layer] for layer in range(depth)])
    return result


def _stack_arrays(arrays: list[Any]) -> Any:
    return jnp.stack(arrays) if isinstance(arrays[0], jax.Array) else np.stack(arrays)
