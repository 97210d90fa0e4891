"""T5X's parameter names and layouts, and ours. T5X has three layouts of a layer's parameters:

    encoder/layers_0/attention/query/kernel    (E, H*D)        one array a layer (network `t5`)
    encoder/layers_0/attention/query/kernel    (E, H, D)       the same, heads apart (`scalable_t5` without scan)
    encoder/encoder/attention/query/kernel     (E, L, H, D)    scanned: layers on axis 1 (`scalable_t5`)

Ours is `encoder/layers/attention/query/kernel` (L, E, H*D), see `spanloom.model.params`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from spanloom.model.params import Flat, stack, unstack
from spanloom.settings.model import Model

_SCANNED = re.compile(r"^(encoder/encoder|decoder/decoder)/")
_INWARDS = re.compile(r"/(query|key|value)/kernel$")
_OUTWARDS = re.compile(r"/out/kernel$")


def is_scanned(names: Any) -> bool:
    """Whether these are the names of T5X's scanned form."""
    return any(_SCANNED.match(name) for name in names)


def from_t5x(flat: Mapping[str, Any], *, scan_axis: int = 1) -> Flat:
    """Our stacked, flat parameters from T5X's, in any of its layouts. NumPy arrays of the same dtype.

    Names may begin with `target/`. Raises ValueError where a layer is missing.
    """
    flat = {name.removeprefix("target/"): np.asarray(leaf) for name, leaf in flat.items()}
    result: Flat = {}
    for name, leaf in flat.items():
        if _SCANNED.match(name):
            stacked = np.moveaxis(leaf, scan_axis, 0)
            result[_SCANNED.sub(_our_stack, name)] = _join_heads(name, stacked, layer_axes=1)
        else:
            result[name] = _join_heads(name, leaf, layer_axes=0)
    return stack(result)


def to_t5x(config: Model, flat: Mapping[str, Any], *, scanned: bool) -> Flat:
    """T5X's parameters from ours: one array a layer, or scanned (layers on axis 1, heads apart)."""
    flat = {name: np.asarray(leaf) for name, leaf in flat.items()}
    if not scanned:
        return unstack(flat)
    result: Flat = {}
    for name, leaf in flat.items():
        if "/layers/" not in name:
            result[name] = leaf
            continue
        result[their_scanned(name)] = np.moveaxis(_split_heads(config, name, leaf), 0, 1)
    return result


def their_scanned(ours: str) -> str:
    """T5X's scanned name of one of our stacked parameters."""
    return ours.replace("encoder/layers/", "encoder/encoder/", 1).replace("decoder/layers/", "decoder/decoder/", 1)


def their_layer(ours: str, layer: int) -> str:
    """T5X's name of one layer of one of our stacked parameters."""
    return ours.replace("/layers/", f"/layers_{layer}/", 1)


def model_settings(t5_config: Mapping[str, Any], *, network: str = "t5", **rest: Any) -> Model:
    """Our settings from the fields of T5X's `T5Config`; `network` scalable_t5 has a position table for each layer.

    `rest` sets further fields of `Model` (buckets, distance, epsilon, scan_layers). Raises ValueError for a
    decoder-only configuration.
    """
    if network not in ("t5", "scalable_t5"):
        raise ValueError(f"network {network!r} is not an encoder-decoder of T5X; there are t5 and scalable_t5")
    return Model(
        **{
            "vocab_size": t5_config["vocab_size"],
            "d_model": t5_config["emb_dim"],
            "d_ff": t5_config["mlp_dim"],
            "num_heads": t5_config["num_heads"],
            "d_kv": t5_config["head_dim"],
            "num_encoder_layers": t5_config["num_encoder_layers"],
            "num_decoder_layers": t5_config["num_decoder_layers"],
            "activations": tuple(t5_config["mlp_activations"]),
            "tie_embeddings": t5_config["logits_via_embedding"],
            "per_layer_position_bias": network == "scalable_t5",
            "dropout": t5_config.get("dropout_rate", 0.0),
            "dtype": t5_config.get("dtype", "float32"),
            **rest,
        }
    )


def _our_stack(match: re.Match[str]) -> str:
    return match[1].split("/")[0] + "/layers/"


def _join_heads(name: str, leaf: np.ndarray, layer_axes: int) -> np.ndarray:
    if leaf.ndim - layer_axes != 3:
        return leaf
    if _INWARDS.search(name):
        return leaf.reshape(*leaf.shape[: layer_axes + 1], -1)
    if _OUTWARDS.search(name):
        return leaf.reshape(*leaf.shape[:layer_axes], -1, leaf.shape[-1])
    raise ValueError(f"{name} has shape {leaf.shape}, which is no layout of T5X that is known here")


def _split_heads(config: Model, name: str, leaf: np.ndarray) -> np.ndarray:
    heads = (config.num_heads, config.d_kv)
    if _INWARDS.search(name):
        return leaf.reshape(*leaf.shape[:-1], *heads)
    if _OUTWARDS.search(name):
        return leaf.reshape(leaf.shape[0], *heads, leaf.shape[-1])
    return leaf
