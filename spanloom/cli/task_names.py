"""`--task NAME ...`: some of a run's tasks."""

from collections.abc import Sequence

from spanloom.cli.errors import UsageError
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.run import Run
from spanloom.settings.task import Task


def tasks_named(run: Run, names: Sequence[str]) -> list[Task]:
    """The run's tasks of these names, in the run's order; all where none is named.

    Raises UsageError for a name that no task has, and names the nearest.
    """
    known = [task.name for task in run.tasks]
    for name in names:
        if name not in known:
            raise UsageError(f"--task {name}: the run has no such task{did_you_mean(name, known)}")
    return [task for task in run.tasks if not names or task.name in names]
