"""PythonExamples: rows that a Python function gives, or that stand in the settings."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from spanloom.settings.function import FunctionError
from spanloom.settings.row_sources import PythonExamples
from spanloom.settings.serialize import to_json
from spanloom.tasks.functions import described, parameters_of, resolve, shown_name
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.shown import shown


def read_python_examples(source: PythonExamples, split: str | None) -> Iterator[Mapping[str, Any]]:
    """The rows, each a mapping. `split` is handed to the function, if it is set.

    Raises BadInputError where there are none to be had, and where the function fails, naming the row.
    """
    yield from checked_rows(source, lambda: _rows_of(made_by(source, split), name_of(source)))


def name_of(source: PythonExamples) -> str:
    """The function's name for messages."""
    return "rows" if source.function is None else shown_name(source.function)


def made_by(source: PythonExamples, split: str | None, skip: int | None = None) -> Any:
    """What the function gives, called with `split` and `skip` where these are set, or the rows themselves.

    Raises BadInputError where there is neither or both, and whatever the function raises.
    """
    if source.function is None:
        if not source.rows:
            raise BadInputError("source", "neither a function nor rows are set", "Set function, or rows")
        return source.rows
    if source.rows:
        raise BadInputError("rows", "both a function and rows are set", "Set one of them")
    given = {name: value for name, value in (("split", split), ("skip", skip)) if value is not None}
    return resolve(replace(source.function, arguments={**source.function.arguments, **given}))()


def takes_skip(source: PythonExamples) -> bool:
    """Whether the function can begin after some rows by itself: it has a parameter `skip`."""
    return source.function is not None and "skip" in parameters_of(resolve(source.function))


def iterable(made: Any, name: str) -> Iterable[Any]:
    """What the function gave, if one can go through it row by row. Raises BadInputError."""
    if isinstance(made, Mapping | str | bytes) or not isinstance(made, Iterable):
        fix = "Return a list of dicts, or yield them one by one"
        raise BadInputError(name, f"returns a {type(made).__name__}, not rows", fix)
    return made


def checked_rows(
    source: PythonExamples, rows: Callable[[], Iterable[Any]], first: int = 0
) -> Iterator[Mapping[str, Any]]:
    """The rows, the first of which has this number. Raises BadInputError as `read_python_examples` does."""
    name, number = name_of(source), first - 1
    try:
        for number, row in enumerate(rows(), first):
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
    if type(made).__module__.startswith("datasets."):
        from spanloom.tasks.hub_rows import rows_of_dataset

        return rows_of_dataset(made, name)
    return iterable(made, name)
