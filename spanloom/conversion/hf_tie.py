"""Whether the output head of a Hugging Face T5 shares the embedding, and whether its logits are scaled. No jax.

Two things decide: the tensors and `scale_decoder_outputs`. transformers 5 writes that flag for t5 and umt5, scales the
logits by d_model^-0.5 where it is true, and shares the embedding where no other head is in the file; it never scales
those of mt5. transformers 4 knows `tie_word_embeddings` alone, which means both to it. transformers 5 writes true
there, into every config, of untied models too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.hf_names import EMBEDDING, HEAD
from spanloom.settings.model import Model

SCALED = "scale_decoder_outputs"
_TIED = "tie_word_embeddings"


@dataclass(frozen=True)
class Tie:
    """What was decided of a head."""

    tied: bool
    """Whether it is the embedding; logits are then scaled by d_model^-0.5."""
    note: str = ""
    """What to tell the user (empty: nothing)."""
    scaled: bool = False
    """Whether the logits of a head of its own are scaled, too, which our models never do."""


@dataclass(frozen=True)
class ScaledTensor:
    """A tensor times a number."""

    whole: WeightTensor
    factor: float

    @property
    def file(self) -> Path:
        """The file that it is in."""
        return self.whole.file

    @property
    def dtype(self) -> str:
        """float32 where the tensor has fewer bits, since these do not hold the product."""
        return "F64" if self.whole.dtype == "F64" else "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return self.whole.shape

    def look(self) -> np.ndarray:
        """The product, in the type that `dtype` says."""
        array = self.whole.look() if self.dtype == "F64" else self.whole.load()
        return array * array.dtype.type(self.factor)

    def load(self) -> np.ndarray:
        """The product as float32."""
        return self.look().astype(np.float32, copy=False)

    def load_rows(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 of a matrix as float32."""
        return self.whole.load_rows(first, last) * np.float32(self.factor)


def decide_tie(entries: Mapping[str, WeightTensor], model: Model, config: Mapping[str, Any], path: Path) -> Tie:
    """Whether the head is the embedding, and whether logits are scaled: as transformers 5 has it.

    Raises ConversionError where a head is missing, or it cannot be known whether the logits of one are scaled.
    """
    said, scaled = model.tie_embeddings, _is_scaled(model, config, path)
    if HEAD not in entries:
        if not said:
            raise ConversionError(
                path,
                f"{_TIED} is false, but the weights hold no {HEAD}: they are incomplete, or the model was "
                f"tied when it was saved (then set {_TIED} to true)",
            )
        return _tied(config) if scaled else _copy(config, f"no {HEAD}")
    if not scaled and not said:
        return Tie(False)
    if equal(entries[HEAD], entries[EMBEDDING]):
        return _tied(config) if scaled else _copy(config, f"a {HEAD} equal to {EMBEDDING}")
    return _apart(scaled, config, path)


def with_head(entries: dict[str, WeightTensor], tie: Tie, model: Model) -> dict[str, WeightTensor]:
    """The tensors with the head that an untied model has: its own, scaled if its logits are, or the embedding."""
    if tie.tied:
        return entries
    head = entries.get(HEAD, entries[EMBEDDING])
    return entries | {HEAD: ScaledTensor(head, model.d_model**-0.5) if tie.scaled else head}


def _is_scaled(model: Model, config: Mapping[str, Any], path: Path) -> bool:
    if _is_mt5(config):
        # left out, it means false there: that is what transformers 4 leaves out of an mt5
        return config.get(_TIED) is True and _of_transformers_4(config)
    flag = config.get(SCALED, model.tie_embeddings)
    if not isinstance(flag, bool):
        raise ConversionError(path, f"{SCALED} is {flag!r}; true or false is needed")
    return flag


def _apart(scaled: bool, config: Mapping[str, Any], path: Path) -> Tie:
    """A head that differs from the embedding, where the config says tied or scaled."""
    if scaled and not _is_mt5(config):
        if SCALED not in config:
            raise ConversionError(
                path,
                f"does not tell whether logits are scaled: it has no {SCALED}, and says tied ({_TIED}), but {HEAD} "
                f"differs from {EMBEDDING}. Set {SCALED} to false (T5 1.1, FLAN, T0, UL2, ByT5, umT5), or to true "
                "where the model was trained with scaled logits",
            )
        return Tie(
            False,
            f"{path.name} says that logits are scaled ({SCALED}), but {HEAD} differs from {EMBEDDING}: read as untied, "
            "d_model^-0.5 multiplied into the head, which gives the same logits",
            scaled=True,
        )
    return Tie(
        False,
        f"{path.name} says that the head is tied ({_TIED}), but {HEAD} differs from {EMBEDDING}: read as "
        "untied, logits not scaled, because transformers 5 writes that flag into the config of every model it saves",
    )


def _tied(config: Mapping[str, Any]) -> Tie:
    if not _is_mt5(config):
        return Tie(True)
    return Tie(
        True,
        "a tied mt5 of transformers 4, which scales its logits: read so; transformers 5 does not scale those of an mt5",
    )


def _copy(config: Mapping[str, Any], held: str) -> Tie:
    kind = "an mt5" if _is_mt5(config) else f"a {config.get('model_type')} whose {SCALED} is false,"
    return Tie(
        False,
        f"{kind} with {held}: transformers 5 uses the embedding as head and does not scale the logits, so "
        "the head was read as an untied copy of the embedding; training on lets the two go apart",
    )


def _is_mt5(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "mt5"


def _of_transformers_4(config: Mapping[str, Any]) -> bool:
    return str(config.get("transformers_version", "5")).startswith("4.")


def equal(first: WeightTensor, second: WeightTensor) -> bool:
    """Whether two matrices hold the same numbers; read in pieces."""
    if first.shape != second.shape:
        return False
    step = max(1, 2**24 // max(1, math.prod(first.shape[1:])))
    return all(
        np.array_equal(
            first.load_rows(begin, min(begin + step, first.shape[0])),
            second.load_rows(begin, min(begin + step, first.shape[0])),
            equal_nan=True,
        )
        for begin in range(0, first.shape[0], step)
    )
