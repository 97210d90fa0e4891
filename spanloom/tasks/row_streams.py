"""The rows of a stream from any row of it on: by the state that it gives itself, or by passing over those before."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from spanloom.settings.row_sources import HuggingFaceDataset, PythonExamples, Streamed
from spanloom.tasks.python_examples import checked_rows, iterable, made_by, name_of, takes_skip
from spanloom.tasks.read_report import BadInputError

Passed = Callable[[int], object]
"""Told how many rows were passed over, now and then."""

_TOLD = 10_000
_END: Any = object()


@dataclass(frozen=True)
class RowStream:
    """One pass over a stream, from some row on. Its end is that of the data, if they have one."""

    rows: Iterator[Mapping[str, Any]]
    """What is left of it."""
    state: Callable[[], Any]
    """What it needs to go on after the row that was given last, as JSON data; None where it has no such thing."""


def open_stream(source: Streamed, taken: int = 0, state: Any = None, passed: Passed = lambda count: None) -> RowStream:
    """The rows for training, or those from which a held-out share is taken, without the first `taken`.

    `state`: what the stream gave after these, which then need not be read again. `passed` is told of rows that are.
    Raises BadInputError where the source cannot be read; its rows raise it where they fail, and where there are fewer
    than `taken`.
    """
    if isinstance(source, HuggingFaceDataset):
        from spanloom.tasks.hub_rows import asked, open_dataset

        dataset = _undecoded(open_dataset(source, source.split))
        opened = _stateful(dataset, source.dataset, taken, state, passed)
        named = iter(lambda: asked(source, lambda: next(opened.rows, _END)), _END)
        return RowStream(map(dict, named), opened.state)
    return _of_function(source, taken, state, passed)


def _of_function(source: PythonExamples, taken: int, state: Any, passed: Passed) -> RowStream:
    name, opened = name_of(source), list[RowStream]()

    def open_() -> RowStream:
        if takes_skip(source):
            made = made_by(source, source.split, skip=taken)
            return RowStream(iter(iterable(made, name)), _no_state)
        made = made_by(source, source.split)
        if type(made).__module__.startswith("datasets."):
            made = _undecoded(made)
        return _stateful(made, name, taken, state, passed)

    def rows() -> Iterable[Any]:
        # called within what turns the function's errors into messages
        opened.append(open_())
        return opened[0].rows

    checked = checked_rows(source, rows, taken)
    first = next(checked, _END)
    again: Iterator[Any] = checked if first is _END else chain([first], checked)
    return RowStream(again, opened[0].state)


def _stateful(made: Any, name: str, taken: int, state: Any, passed: Passed) -> RowStream:
    """Rows of an object that may keep a state of its own (state_dict, load_state_dict)."""
    has_state = hasattr(made, "state_dict") and hasattr(made, "load_state_dict")
    if has_state and state is not None:
        made.load_state_dict(state)
    rows = iter(iterable(made, name))
    if taken and not (has_state and state is not None):
        rows = _without_first(rows, taken, name, passed)
    return RowStream(rows, (lambda: _as_json(made.state_dict())) if has_state else _no_state)


def _undecoded(dataset: Any) -> Any:
    from spanloom.tasks.hub_rows import rows_of_dataset, undecoded

    if type(dataset).__name__ == "IterableDataset":
        return undecoded(dataset)
    return rows_of_dataset(dataset, type(dataset).__name__)


def _without_first(rows: Iterator[Any], taken: int, name: str, passed: Passed) -> Iterator[Any]:
    for number in range(taken):
        if number % _TOLD == 0:
            passed(number)
        if next(rows, _END) is _END:
            what = f"gave {taken:,} rows or more before, and ends after {number:,} now"
            raise BadInputError(name, what, "Make it give the same rows again, or begin a new run")
    passed(taken)
    yield from rows


def _no_state() -> None:
    return None


def _as_json(state: Any) -> Any:
    """The state; None for one that cannot be written down, so that rows are passed over in its place."""
    try:
        return json.loads(json.dumps(state))
    except (TypeError, ValueError):
        return None
