"""One feature of a task's examples, as settings."""

from dataclasses import dataclass
from typing import Literal

from spanloom.settings.vocabulary import Vocabulary


@dataclass(frozen=True)
class Feature:
    """A field of what the preprocessors give: text to be tokenized, token ids, or numbers."""

    name: str
    """Name of the field."""
    vocabulary: Vocabulary | None = None
    """Text to ids; unset: the task's."""
    add_eos: bool = True
    """Whether an end of sequence is put after its tokens."""
    dtype: Literal["int32", "int64", "float32"] = "int32"
    """int32: token ids, or text that becomes some. int64, float32: numbers, which no end of sequence follows."""
    required: bool = True
    """Whether an example without it is an error; where it is absent it is empty."""


MODEL_INPUTS = (Feature("inputs"), Feature("targets"))
"""What an encoder-decoder learns from."""
