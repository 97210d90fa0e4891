"""From serialized tf.train.Example messages to rows, of the features that a description names, or of all there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.seqio_features import Feature, build_example
from spanloom.tasks.tf_example import parse_examples
from spanloom.tasks.tfrecord import Record

Placed = Sequence[tuple[str, memoryview]]
"""Where each payload stands, for messages, and the payload."""


@dataclass(frozen=True)
class Described:
    """What an example holds, and who says so."""

    features: Mapping[str, Feature] | None
    """None: whatever it holds."""
    by: str = "the features set"
    """Who says so, for messages."""
    fix: str = ""
    """What to do about an example of another form."""


def placed(path: str, records: Iterable[Record]) -> Placed:
    """The records of a TFRecord file with the byte at which each begins."""
    return [(f"{path}: byte {record.offset}", record.payload) for record in records]


def decode_rows(described: Described, payloads: Placed, intake: Intake) -> Iterator[dict[str, Any]]:
    """The row of each message: int, float, bool, str or bytes; NumPy arrays of the feature's dtype; lists.

    Raises BadInputError, naming the place, for what is no message or not as described (errors=skip: counted).
    """
    parsed = parse_examples([payload for _, payload in payloads])
    for (where, _), example in zip(payloads, parsed, strict=True):
        if isinstance(example, ValueError):
            what = f"the record that begins here is no tf.train.Example: {example}"
            intake.refuse(BadInputError(where, what, described.fix, reason="no tf.train.Example"))
            continue
        features = _own_features(example) if described.features is None else described.features
        try:
            row = build_example(features, example, where, intake)
        except ValueError as error:
            if isinstance(error, BadInputError):
                raise
            what = f"the record that begins here is not what {described.by} says: {error}"
            intake.refuse(BadInputError(where, what, described.fix, reason="example of another form"))
            continue
        if row is not None:
            yield row


def _own_features(example: Mapping[str, Any]) -> dict[str, Feature]:
    """One text as it is, more as a list; numbers always as an array, however few."""
    found = {}
    for name, values in example.items():
        is_text = isinstance(values, list)
        dtype = "string" if is_text else values.dtype.name
        found[name] = Feature(name, dtype, () if is_text and len(values) == 1 else (None,))
    return found
