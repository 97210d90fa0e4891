"""Examples kept or left out: by length, and those seen before."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Deduplicate:
    """Keeps the first of the examples that are equal in some fields.

    Unlike the other preprocessors it must see a task's examples in order, all of them. It remembers 16 bytes of each
    (BLAKE2b): about 100 bytes of memory with Python's own.
    """

    feature_keys: tuple[str, ...] = ("inputs", "targets")

    def key(self, example: Example) -> bytes:
        """16 bytes that only equal examples have in common. Raises FieldError for missing fields."""
        values = [fields.value(example, name) for name in self.feature_keys]
        # an array's own repr leaves out the middle of a long one
        plain = [one.tolist() if hasattr(one, "tolist") else one for one in values]
        written = [repr(one).encode("utf-8", "surrogatepass") for one in plain]
        return hashlib.blake2b(b"".join(b"%d:%b" % (len(one), one) for one in written), digest_size=16).digest()

    def __call__(self, examples: Iterable[Example]) -> Iterator[dict[str, Any]]:
        """Of a task's examples those that are kept, in order."""
        seen: set[bytes] = set()
        for example in examples:
            key = self.key(example)
            if key not in seen:
                seen.add(key)
                yield dict(example)
