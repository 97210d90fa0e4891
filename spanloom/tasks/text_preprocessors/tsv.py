"""Lines of delimited text to fields. A quote is a character like any other, as in T5's files."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields
from spanloom.tasks.text_preprocessors.fields import Example

_FIELD = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True)
class ParseTsv:
    """The columns of a line, by the names given; further columns are left out."""

    field_names: Sequence[str] | None = None
    """None: inputs, targets."""
    field_delim: str = "\t"
    field_columns: Sequence[int] | None = None
    """Numbers of the columns from 0, ascending; None: the first ones."""

    def __post_init__(self) -> None:
        """Raises ValueError for columns that do not ascend or are not as many as the names."""
        columns = list(range(len(self._names)) if self.field_columns is None else self.field_columns)
        if columns != sorted(set(columns)) or any(column < 0 for column in columns):
            raise ValueError(f"field_columns {columns}: give different columns from 0, in ascending order")
        if len(columns) != len(self._names):
            raise ValueError(f"{len(self._names)} field_names, but {len(columns)} field_columns: give as many")

    @property
    def _names(self) -> Sequence[str]:
        return ("inputs", "targets") if self.field_names is None else self.field_names

    def __call__(self, line: str | Example) -> dict[str, Any]:
        """From a line, or an example whose field 'text' is one. Raises FieldError for a line with too few columns."""
        cells = _cells(line, self.field_delim)
        columns = range(len(self._names)) if self.field_columns is None else self.field_columns
        if columns and columns[-1] >= len(cells):
            raise _wrong_count(len(cells), f"{columns[-1] + 1} or more", self.field_delim)
        return {name: cells[column] for name, column in zip(self._names, columns, strict=True)}


@dataclass(frozen=True)
class PreprocessTsv:
    """Inputs and targets written from the columns of a line: 'question: {0}', or by name '{quotient}'."""

    inputs_format: str = "{0}"
    targets_format: str = "{1}"
    field_delim: str = "\t"
    num_fields: int = 2
    """Columns of each line, where field_names does not name them."""
    field_names: Sequence[str] | None = None

    def __call__(self, line: str | Example) -> dict[str, Any]:
        """From a line, or an example whose field 'text' is one. Raises FieldError for another number of columns."""
        cells = _cells(line, self.field_delim)
        names = list(map(str, range(self.num_fields))) if self.field_names is None else self.field_names
        if len(cells) != len(names):
            raise _wrong_count(len(cells), str(len(names)), self.field_delim)
        row = dict(zip(names, cells, strict=True))
        return {"inputs": _written(self.inputs_format, row), "targets": _written(self.targets_format, row)}


def _cells(line: str | Example, delimiter: str) -> list[str]:
    return (line if isinstance(line, str) else fields.text(line, "text")).split(delimiter)


def _written(form: str, row: Example) -> str:
    return _FIELD.sub(lambda match: fields.text(row, match[1]), form)


def _wrong_count(count: int, wanted: str, delimiter: str) -> FieldError:
    what = f"a line of {count} columns, not {wanted}, where {delimiter!r} parts them"
    return FieldError(what, "Check the delimiter and the line", "wrong number of columns")
