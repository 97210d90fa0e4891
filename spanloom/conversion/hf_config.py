"""Hugging Face's config.json <-> our `Model` settings. No jax.

Both flags of the head are always written: transformers 4 ties it and scales the logits where tie_word_embeddings is
true; transformers 5 ties it where no other is there, and scales where scale_decoder_outputs is true. How they are read
is in `spanloom.conversion.hf_tie`.

Sizes must be there, and agree with the tensors. What a file leaves out else is what transformers itself takes: 32
buckets, distance 128, epsilon 1e-6, relu (t5) or gated gelu (mt5, umt5).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spanloom.conversion.errors import ConversionError
from spanloom.settings.model import Model
from spanloom.tasks.shown import shown

_LARGEST = 2**31 - 1
_ARCHITECTURES = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
# "gelu" is the tanh approximation with us, as in T5X; Hugging Face calls that gelu_new, but "gated-gelu" means it too.
_TO_HF = {
    ("relu",): "relu",
    ("gelu",): "gelu_new",
    ("silu",): "silu",
    ("linear",): "linear",
    ("gelu", "linear"): "gated-gelu",
    ("relu", "linear"): "gated-relu",
    ("silu", "linear"): "gated-silu",
}
_FROM_HF = {name: activations for activations, name in _TO_HF.items()} | {
    "gated-gelu_new": ("gelu", "linear"),
    "gelu_pytorch_tanh": ("gelu",),
    "gated-gelu_pytorch_tanh": ("gelu", "linear"),
    "swish": ("silu",),
    "gated-swish": ("silu", "linear"),
}


def model_type(model: Model) -> str:
    """The Hugging Face model class that computes this model: umt5 for position tables in every layer, mt5 for models
    of that name, else t5. A tied mt5 is written as t5: transformers 5 does not scale the logits of its mt5."""
    if model.per_layer_position_bias:
        return "umt5"
    return "mt5" if model.name.startswith(("mt5", "mt0")) and not model.tie_embeddings else "t5"


def to_config(model: Model, tokenizer_class: str, eos_id: int) -> dict[str, Any]:
    """The content of config.json. ValueError for activations that Hugging Face's T5 cannot express."""
    if model.activations not in _TO_HF:
        raise ValueError(
            f"activations {model.activations} cannot be written for Hugging Face's T5; it knows "
            + ", ".join(map(str, _TO_HF))
        )
    kind = model_type(model)
    return {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": kind,
        "vocab_size": model.vocab_size,
        "d_model": model.d_model,
        "d_kv": model.d_kv,
        "d_ff": model.d_ff,
        "num_layers": model.num_encoder_layers,
        "num_decoder_layers": model.num_decoder_layers,
        "num_heads": model.num_heads,
        "relative_attention_num_buckets": model.relative_position_buckets,
        "relative_attention_max_distance": model.relative_position_max_distance,
        "dropout_rate": model.dropout,
        "layer_norm_epsilon": model.norm_epsilon,
        "initializer_factor": 1.0,
        "feed_forward_proj": _TO_HF[model.activations],
        "is_encoder_decoder": True,
        "tie_word_embeddings": model.tie_embeddings,
        "scale_decoder_outputs": model.tie_embeddings,
        "use_cache": True,
        "pad_token_id": 0,
        "eos_token_id": eos_id,
        "decoder_start_token_id": 0,
        "tokenizer_class": tokenizer_class,
        "torch_dtype": "float32",
    }


def generation_config(eos_id: int) -> dict[str, Any]:
    """The content of generation_config.json."""
    return {"decoder_start_token_id": 0, "eos_token_id": eos_id, "pad_token_id": 0}


def from_config(config: dict[str, Any], path: Path, name: str = "custom") -> Model:
    """The architecture that a config.json describes; `tie_embeddings` is only what the file says.

    Raises ConversionError naming the file and the field that is missing, of a wrong type, or not ours.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in _ARCHITECTURES:
        raise ConversionError(path, f"model_type is {kind!r}; only {', '.join(_ARCHITECTURES)} are T5-family models")
    for field in ("pad_token_id", "decoder_start_token_id"):
        check_id(config, path, field, 0)
    number = _Reader(config, path)
    layers = number.integer("num_layers")
    buckets, distance = number.positions()
    return Model(
        vocab_size=number.integer("vocab_size"),
        d_model=number.integer("d_model"),
        d_ff=number.integer("d_ff"),
        num_heads=number.integer("num_heads"),
        d_kv=number.integer("d_kv"),
        num_encoder_layers=layers,
        num_decoder_layers=number.integer("num_decoder_layers", default=layers),
        activations=_activations(config, path, default="relu" if kind == "t5" else "gated-gelu"),
        tie_embeddings=_says_tied(config, path),
        per_layer_position_bias=kind == "umt5",
        relative_position_buckets=buckets,
        relative_position_max_distance=distance,
        norm_epsilon=number.real("layer_norm_epsilon", default=1e-6),
        dropout=number.real("dropout_rate", default=0.1),
        name=name,
    )


def _says_tied(config: Mapping[str, Any], path: Path) -> bool:
    said = config.get("tie_word_embeddings")
    if not isinstance(said, bool | None):
        raise ConversionError(path, f"tie_word_embeddings is {said!r}; true or false is needed")
    return said is not False


def _activations(config: dict[str, Any], path: Path, default: str) -> Any:
    written = default if config.get("feed_forward_proj") is None else config["feed_forward_proj"]
    if not isinstance(written, str) or written not in _FROM_HF:
        hint = (
            " ('gelu' alone is the exact form; only its tanh approximation is known here)" if written == "gelu" else ""
        )
        raise ConversionError(path, f"feed_forward_proj {written!r} is not among {', '.join(_FROM_HF)}{hint}")
    activations = _FROM_HF[written]
    inner, gated = config.get("dense_act_fn"), config.get("is_gated_act")
    if inner is not None and (not isinstance(inner, str) or _FROM_HF.get(inner, ("",))[0] != activations[0]):
        raise ConversionError(path, f"feed_forward_proj is {written!r}, but dense_act_fn {inner!r}: only one is true")
    if gated is not None and bool(gated) != (len(activations) == 2):
        raise ConversionError(path, f"feed_forward_proj is {written!r}, but is_gated_act {gated}: only one is true")
    return activations


def check_id(config: Mapping[str, Any], path: Path, field: str, ours: int) -> None:
    """Raise ConversionError where a config.json names another special id than the model has."""
    if config.get(field, ours) not in (ours, [ours], None):
        raise ConversionError(path, f"{field} is {config[field]}; this model has {ours}")


class _Reader:
    """Typed access to a config's numbers, with errors that name the file and the field."""

    def __init__(self, config: dict[str, Any], path: Path) -> None:
        self._config = config
        self._path = path

    def integer(self, field: str, default: int | None = None) -> int:
        value = self._value(field, default)
        if type(value) is not int or not 1 <= value <= _LARGEST:
            raise ConversionError(
                self._path, f"{field} is {shown(value)}; a whole number from 1 to {_LARGEST:,} is needed"
            )
        return value

    def real(self, field: str, default: float) -> float:
        value = self._value(field, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise ConversionError(self._path, f"{field} is {value!r}; a number from 0 to 1 is needed")
        return float(value)

    def positions(self) -> tuple[int, int]:
        """Buckets of relative positions, and the distance from which on they share the last one."""
        buckets = self.integer("relative_attention_num_buckets", default=32)
        distance = self.integer("relative_attention_max_distance", default=128)
        if buckets < 4 or buckets % 2:
            raise ConversionError(
                self._path, f"relative_attention_num_buckets is {buckets}; an even number from 4 on is needed"
            )
        if distance <= buckets // 2:
            raise ConversionError(
                self._path,
                f"relative_attention_max_distance is {distance}; more than half of relative_attention_num_buckets, "
                f"which is {buckets}, is needed",
            )
        return buckets, distance

    def _value(self, field: str, default: Any) -> Any:
        value = self._config.get(field)
        if value is None:
            value = default
        if value is None:
            raise ConversionError(self._path, f"has no {field}: it is not the config.json of a T5-family model")
        return value
