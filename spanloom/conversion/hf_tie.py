"""Whether the output head of a Hugging Face T5 shares the embedding, and whether its logits are scaled. No jax.

The flag `tie_word_embeddings` alone cannot be believed: transformers 5 ties every new T5 and writes true into every
config, of untied models too; transformers 4 took the same flag for "scale the logits by d_model^-0.5".
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.hf_names import EMBEDDING, HEAD
from spanloom.settings.model import Model


def decide_tie(
    entries: Mapping[str, WeightTensor], model: Model, config: Mapping[str, Any], path: Path
) -> tuple[bool, str]:
    """Whether the head is tied (and scaled), and what to tell the user about the decision (empty: nothing).

    Raises ConversionError where the flag says untied but there is no head.
    """
    said = model.tie_embeddings
    if HEAD not in entries:
        if not said:
            raise ConversionError(
                path,
                f"tie_word_embeddings is false, but the weights hold no {HEAD}: they are incomplete, or the model was "
                "tied when it was saved (then set tie_word_embeddings to true)",
            )
        if config.get("model_type") == "mt5" and not str(config.get("transformers_version", "5")).startswith("4."):
            return False, (
                f"an mt5 without {HEAD}: transformers 5 uses the embedding as head and does not scale the logits, so "
                "the head was read as an untied copy of the embedding; training on lets the two go apart"
            )
        return True, ""
    if not said or equal(entries[HEAD], entries[EMBEDDING]):
        return said, ""
    return False, (
        f"{path.name} says that the head is tied (tie_word_embeddings), but {HEAD} differs from {EMBEDDING}: read as "
        "untied, logits not scaled, because transformers 5 writes that flag into the config of every model it saves"
    )


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
