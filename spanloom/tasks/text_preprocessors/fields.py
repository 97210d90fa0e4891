"""The fields of an example, by name and as the kind that a preprocessor needs, with errors that say which and why."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.tasks.templates import FieldError, value_of

Example = Mapping[str, Any]


def value(example: Example, name: str) -> Any:
    """A field's value: by its very name, else a path whose parts a '/' or '.' joins. Raises FieldError."""
    return value_of(example, name if name in example else name.replace("/", "."))


def text(example: Example, name: str) -> str:
    """A field that is text. Raises FieldError where it is missing or something else."""
    found = value(example, name)
    if not isinstance(found, str):
        raise _other(name, found, "text")
    return found


def texts(example: Example, name: str) -> list[str]:
    """A field that is a list of texts. Raises FieldError where it is missing or something else."""
    found = value(example, name)
    if isinstance(found, str | Mapping) or not _is_list(found) or not all(isinstance(one, str) for one in found):
        raise _other(name, found, "a list of texts")
    return list(found)


def written(example: Example, name: str) -> str:
    """A field that is text, a number or a boolean, as text. Raises FieldError where it is missing or something else."""
    found = value(example, name)
    if isinstance(found, str):
        return found
    if isinstance(found, bool | int | float):
        return json.dumps(found)
    raise _other(name, found, "text or a number")


def number(example: Example, name: str) -> float:
    """A field that is a number. Raises FieldError where it is missing or something else."""
    found = value(example, name)
    if isinstance(found, bool) or not hasattr(found, "__float__"):
        raise _other(name, found, "a number")
    return float(found)


def whole(example: Example, name: str) -> int:
    """A field that is a whole number, or a boolean. Raises FieldError where it is missing or something else."""
    found = value(example, name)
    if not hasattr(found, "__index__"):
        raise _other(name, found, "a whole number")
    return int(found)


def wholes(example: Example, name: str) -> list[int]:
    """A field that is a whole number or a list of them, such as token ids. Raises FieldError."""
    found = value(example, name)
    if hasattr(found, "__index__") and not _is_list(found):
        return [int(found)]
    if isinstance(found, str | Mapping) or not _is_list(found) or not all(hasattr(one, "__index__") for one in found):
        raise _other(name, found, "a list of whole numbers")
    return [int(one) for one in found]


def _is_list(found: Any) -> bool:
    """A list, a tuple, or an array of one dimension."""
    return isinstance(found, Sequence) or getattr(found, "ndim", 0) == 1


def _other(name: str, found: Any, wanted: str) -> FieldError:
    kind = "null" if found is None else type(found).__name__
    shown = "" if found is None else f" ({repr(found)[:60]})"
    fix = f"Name a field that is {wanted}, or change it in a preprocessor before this one"
    return FieldError(f"field {name!r} is {kind}{shown}, not {wanted}", fix, f"field {name!r} is not {wanted}")
