"""Bad input of one task among several: named, and what can be known early said before hours of building."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spanloom.pipeline.meta import META
from spanloom.pipeline.spool.index import HEADER
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.sources import source_fingerprint


@contextlib.contextmanager
def naming(task: Task, *, several: bool) -> Iterator[None]:
    """A BadInputError inside is said to be the task's, if it is one of several."""
    try:
        yield
    except BadInputError as error:
        if not several:
            raise
        raise BadInputError(f"task {task.name!r}: {error.where}", error.what, error.fix, reason=error.reason) from error


def have_stores(directories: Iterable[Path]) -> bool:
    """Whether stores (of streams, shards) stand in all of them, which may be used whatever became of their text."""
    return all(any((directory / name).exists() for name in (META, HEADER)) for directory in directories)


def refuse_missing(tasks: Sequence[Task]) -> None:
    """Raises BadInputError for the first task whose source lacks what it names, and names all others.

    Of hundreds of tasks the last should not fail after hours of building. A source that is alone is left to the build,
    which reads it at once.
    """
    if len(tasks) < 2:
        return
    problems: list[tuple[Task, BadInputError]] = []
    for task in tasks:
        try:
            source_fingerprint(task.source)
        except BadInputError as error:
            problems.append((task, error))
    if not problems:
        return
    (task, first), others = problems[0], ", ".join(repr(task.name) for task, _ in problems[1:])
    also = f"; nor can the sources of {len(problems) - 1} more tasks be read: {others}" if others else ""
    with naming(task, several=True):
        raise BadInputError(first.where, first.what + also, first.fix, reason=first.reason)
