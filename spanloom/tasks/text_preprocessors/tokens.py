"""Token ids of finished features: the end of sequence appended, and what is too long cut at either side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example


@dataclass(frozen=True)
class AppendEos:
    """The end of sequence after each feature; one that is cut to its length afterwards may lose it again."""

    features: tuple[str, ...] = ("inputs", "targets")
    eos_id: int = 1

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for a feature that is missing or no token ids."""
        return {**example, **{name: [*fields.wholes(example, name), self.eos_id] for name in self.features}}


@dataclass(frozen=True)
class AppendEosAfterTrim:
    """Each feature cut at the right so that the end of sequence, appended here, fits its length."""

    lengths: Mapping[str, int | None]
    """Feature -> length in tokens, EOS included; None: as long as it is."""
    eos_id: int = 1

    def __post_init__(self) -> None:
        """Raises ValueError for lengths below 1."""
        _check(self.lengths)

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for a feature that is missing or no token ids."""
        changed = {}
        for name, length in self.lengths.items():
            tokens = fields.wholes(example, name)
            changed[name] = [*(tokens if length is None else tokens[: length - 1]), self.eos_id]
        return {**example, **changed}


@dataclass(frozen=True)
class TruncateInputsLeft:
    """Only the last tokens of the inputs, as many as the length: for dialogues, whose end matters most."""

    length: int
    feature: str = "inputs"

    def __post_init__(self) -> None:
        """Raises ValueError for a length below 1."""
        _check({self.feature: self.length})

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for a feature that is missing or no token ids."""
        return {**example, self.feature: fields.wholes(example, self.feature)[-self.length :]}


@dataclass(frozen=True)
class TrimTokensAtFront:
    """Only the last tokens of each feature, one fewer than its length, so that the end of sequence fits after them."""

    lengths: Mapping[str, int]

    def __post_init__(self) -> None:
        """Raises ValueError for lengths below 2."""
        _check(self.lengths, least=2)

    def __call__(self, example: Example) -> dict[str, Any]:
        """Raises FieldError for a feature that is missing or no token ids."""
        return {**example, **{k: fields.wholes(example, k)[-(length - 1) :] for k, length in self.lengths.items()}}


def _check(lengths: Mapping[str, int | None], least: int = 1) -> None:
    for name, length in lengths.items():
        if length is not None and length < least:
            raise ValueError(f"length {length} of {name!r}: give at least {least}")
