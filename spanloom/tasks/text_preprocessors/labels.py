"""What the preprocessors of labelled sets have in common: the label's name, and the id that is kept."""

from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

UNKNOWN = "<unk>"
"""The target of an example without a label (-1), such as those of the test sets."""


def label_name(example: Example, label_names: Sequence[str]) -> str:
    """The name of the field 'label', a number from 0; '<unk>' for -1. Raises FieldError for another number."""
    label = fields.whole(example, "label")
    if label == -1:
        return UNKNOWN
    if not 0 <= label < len(label_names):
        what = f"label {label} has no name; the names are {', '.join(map(repr, label_names))}"
        raise FieldError(what, "Name all labels in the order of their numbers", "label without a name")
    return label_names[label]


def kept_id(example: Example, key: str) -> dict[str, Any]:
    """The id as it is, or one with fields inside as '<id>/<field>'. Raises FieldError where it is missing."""
    found = fields.value(example, key)
    if isinstance(found, Mapping):
        return {f"{key}/{inner}": value for inner, value in found.items()}
    return {key: found}
