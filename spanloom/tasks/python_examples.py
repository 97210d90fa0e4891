"""PythonExamples: rows that a Python function gives, or that stand in the settings."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spanloom.settings.function import FunctionError
from spanloom.settings.row_sources import PythonExamples
from spanloom.settings.serialize import to_json
from spanloom.tasks.functions import described, resolve, shown_name
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.shown import shown


def read_python_examples(source: PythonExamples, split: str | None) -> Iterator[Mapping[str, Any]]:
    """The rows, each a mapping. `split` is handed to the function, if it is set.

    Raises BadInputError where there are none to be had, and where the function fails, naming the row.
    """
    if source.function is None:
        if not source.rows:
            raise BadInputError("source", "neither a function nor rows are set", "Set function, or rows")
        yield from source.rows
        return
    if source.rows:
        raise BadInputError("rows", "both a function and rows are set", "Set one of them")
    name = shown_name(source.function)
    number = -1
    try:
        function = source.function
        if split is not None:
            function = replace(function, arguments={**function.arguments, "split": split})
        for number, row in enumerate(_rows_of(resolve(function)(), name)):
            if not isinstance(row, Mapping):
                what = f"row {number} is a {type(row).__name__} ({shown(row)}), not a mapping from names to values"
                raise BadInputError(name, what, "Yield dicts, such as {'inputs': ..., 'targets': ...}")
            yield row
    except BadInputError:
        raise
    except FunctionError as error:
        raise BadInputError(name, str(error)) from error
    except Exception as error:
        what = f"fails at row {number + 1}: {type(error).__name__}: {error}"
        raise BadInputError(name, what, "Mend the function") from error


def identify_python_examples(source: PythonExamples) -> Iterator[bytes]:
    """The function's name, its arguments and its code, or the rows."""
    if source.function is None:
        yield json.dumps(to_json(list(source.rows)), sort_keys=True).encode()
    else:
        yield json.dumps(described(source.function), sort_keys=True).encode()


def _rows_of(made: Any, name: str) -> Iterable[Any]:
    """What to go through. Raises BadInputError for what cannot be."""
    if type(made).__module__.startswith("datasets."):
        from spanloom.tasks.hub_rows import rows_of_dataset

        return rows_of_dataset(made, name)
    if isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable):
        fix = "Return a list of dicts, or yield them one by one"
        raise BadInputError(name, f"returns a {type(made).__name__}, not rows", fix)
    return made
