"""What the weights of T5X do not show: activations, the farthest distance with a bucket of its own, epsilon.

The gin file beside a checkpoint says them, or the user; activations else follow from a released model of the very same
sizes, and are otherwise not known. Distance (128) and epsilon (1e-6) stand in T5X's own code, and so are those of
every checkpoint whose gin file does not bind others. All other quantities show in names and shapes, see
`t5x_architecture`: sizes, heads and their width, depths, buckets, whether there is a gate, whether the head is tied
(logits are then scaled, in T5X and Mesh TensorFlow alike), whether each layer has its position table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.t5x_gin import GinFacts
from spanloom.model.params import declare
from spanloom.model.sizes import published_name
from spanloom.settings.model import Model

_GATED: tuple[Any, ...] = (("gelu", "linear"), ("silu", "linear"))
_PLAIN: tuple[Any, ...] = (("relu",),)
_OTHER_NAMES = {"swish": "silu"}
# T5Config's names, and those of layers, of what the shapes have shown
_SHOWN = {
    "vocab_size": "vocab_size",
    "emb_dim": "d_model",
    "num_heads": "num_heads",
    "num_encoder_layers": "num_encoder_layers",
    "num_decoder_layers": "num_decoder_layers",
    "head_dim": "d_kv",
    "mlp_dim": "d_ff",
    "logits_via_embedding": "tie_embeddings",
    "num_buckets": "relative_position_buckets",
}


@dataclass(frozen=True)
class Completed:
    """A model with what its weights do not show."""

    model: Model
    """The model; activations that are not known are the commonest."""
    activations_known: bool
    """Whether somebody said them, or a released model has these very sizes."""
    notes: tuple[str, ...]
    """What a user should know."""


def parse_activations(text: str) -> tuple[str, ...]:
    """What a user writes: "gelu,linear" (a gate) or "relu"."""
    return tuple(_OTHER_NAMES.get(part.strip(), part.strip()) for part in text.split(","))


def complete(model: Model, gin: GinFacts | None, path: Path, given: tuple[str, ...] | None = None) -> Completed:
    """The model of a checkpoint at `path`, completed by its gin file and by the activations that a user gives.

    Raises ConversionError where these contradict the weights or each other.
    """
    if gin is not None:
        model = _with_numbers(model, gin)
    said = _activations_in(gin, model) if gin else None
    if given is not None:
        if said is not None and given != said[0]:
            raise ConversionError(
                said[1], f"says activations {_shown(said[0])}, and --activations {_shown(given)}: leave out one of them"
            )
        return Completed(_checked(model, given, path, "--activations"), True, ())
    if said is not None:
        return Completed(_checked(model, said[0], said[1], "mlp_activations"), True, ())
    for kind in _GATED if len(model.activations) == 2 else _PLAIN:
        candidate = replace(model, activations=kind)
        if (name := published_name(candidate)) != "custom":
            note = f"activations {' x '.join(kind)}, those of {name}, which has these very sizes"
            return Completed(candidate, True, (note,))
    return Completed(model, False, ())


def unknown_activations(model: Model, path: Path) -> ConversionError:
    """The error where activations are needed and not known."""
    gated = len(model.activations) == 2
    common = "gelu,linear (T5 1.1 and most since), silu,linear (UL2)" if gated else "relu (T5 1.0), gelu"
    line = "('gelu', 'linear')" if gated else "('relu',)"
    return ConversionError(
        path,
        f"holds feed-forward layers {'with' if gated else 'without'} a gate, but which activations it was trained with "
        "is not known: weights do not show them, no config.gin beside it says them, and no released model has these "
        f"sizes. Give convert or inspect --activations {common} or another; or put a file config.gin beside it, with "
        f"the line T5Config.mlp_activations = {line}, which every command reads",
    )


def _with_numbers(model: Model, gin: GinFacts) -> Model:
    for theirs, ours in _SHOWN.items():
        if theirs in gin.model and gin.model[theirs] != getattr(model, ours):
            raise ConversionError(
                gin.path,
                f"says {theirs} = {gin.model[theirs]!r}, but the weights beside it show {getattr(model, ours)}: it "
                "belongs to another model; move it away to have it passed over",
            )
    distance, epsilon = gin.model.get("max_distance"), gin.model.get("epsilon")
    if distance is not None:
        if type(distance) is not int or distance < 1:
            raise ConversionError(gin.path, f"says max_distance = {distance!r}; a positive whole number is needed")
        if distance <= (buckets := model.relative_position_buckets) // 2:
            raise ConversionError(
                gin.path, f"says max_distance = {distance}; more than half of the {buckets} buckets is needed"
            )
        model = replace(model, relative_position_max_distance=distance)
    if epsilon is not None:
        if type(epsilon) is not float or not 0 <= epsilon < 1:
            raise ConversionError(gin.path, f"says epsilon = {epsilon!r}; a number from 0 to 1 is needed")
        model = replace(model, norm_epsilon=epsilon)
    return model


def _activations_in(gin: GinFacts, model: Model) -> tuple[tuple[str, ...], Path] | None:
    facts: Mapping[str, Any] = gin.model
    if "mlp_activations" not in facts:
        return None
    written = facts["mlp_activations"]
    if not isinstance(written, tuple | list) or len(written) != len(model.activations):
        raise ConversionError(
            gin.path, f"says mlp_activations = {written!r}; the weights have {len(model.activations)}"
        )
    return tuple(_OTHER_NAMES.get(str(one), str(one)) for one in written), gin.path


def _checked(model: Model, activations: tuple[str, ...], path: Path, name: str) -> Model:
    if len(activations) != len(model.activations):
        shown = "a gate (wi_0 and wi_1): give two" if len(model.activations) == 2 else "no gate (wi alone): give one"
        raise ConversionError(path, f"{name} {_shown(activations)}: the weights have {shown}")
    configured = replace(model, activations=activations)  # type: ignore[arg-type]
    try:
        declare(configured)
    except ValueError as error:
        raise ConversionError(path, f"{name}: {error}") from error
    return configured


def _shown(activations: tuple[str, ...]) -> str:
    return ",".join(activations)
