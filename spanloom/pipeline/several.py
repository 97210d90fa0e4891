"""Bad input of one task among several: named, and what can be known early said before hours of building."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from spanloom.pipeline.examples import DataError
from spanloom.pipeline.meta import META
from spanloom.pipeline.spool.index import HEADER
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.sources import source_fingerprint


@contextlib.contextmanager
def naming(task: Task, *, several: bool) -> Iterator[None]:
    """A BadInputError or DataError inside is said to be the task's, if it is one of several, and flags, of which there
    are none for one of several tasks, are said as the fields that they set.
    """
    try:
        yield
    except BadInputError as error:
        if not several:
            raise
        where, fix = f"task {task.name!r}: {error.where}", in_fields(error.fix)
        raise BadInputError(where, error.what, fix, reason=error.reason) from error
    except DataError as error:
        if not several or repr(task.name) in str(error):
            raise
        raise DataError(f"task {task.name!r}: {error}") from error


def in_fields(text: str) -> str:
    """A text with flags of a source as the fields that they set: one of several tasks has no flags."""
    return _FLAG.sub(lambda flag: f"source.{flag[1].replace('-', '_')}", text)


_FLAG = re.compile(r"--(?:task\.source\.)?(format|encoding|errors|header|heldout-share|heldout-files)\b")


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
