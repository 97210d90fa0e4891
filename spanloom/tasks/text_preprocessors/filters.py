"""Examples kept or left out by length."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example


@dataclass(frozen=True)
class FilterByStringLength:
    """Keeps examples whose text has a length within the bounds, both included; in bytes of UTF-8, as TensorFlow's."""

    feature_key: str
    min_length: int = 1
    max_length: int = 1_000_000

    def __call__(self, example: Example) -> bool:
        """Whether it is kept. Raises FieldError where the field is missing or no text."""
        return self.min_length <= len(fields.text(example, self.feature_key).encode()) <= self.max_length


@dataclass(frozen=True)
class FilterByTokenLength:
    """Keeps examples whose features have no fewer and no more tokens than these."""

    min_lengths: Mapping[str, int] = field(default_factory=dict)
    max_lengths: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, example: Example) -> bool:
        """Whether it is kept. Raises FieldError where a feature is missing or no token ids."""
        long = all(len(fields.wholes(example, name)) >= bound for name, bound in self.min_lengths.items())
        return long and all(len(fields.wholes(example, name)) <= bound for name, bound in self.max_lengths.items())
