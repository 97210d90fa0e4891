"""What was left out of a part of a task when its store was built, in words."""

from collections.abc import Mapping

from spanloom.settings.task import Task
from spanloom.tasks.prompts.prompted import RENDERING
from spanloom.tasks.read_report import ReadReport, plural

BY = "left out by "
"""Before the preprocessor's name: how reports count what it left out."""
_NEEDS = "; a template must give inputs and targets, neither empty, with one ||| between them"


def skipped(task: Task, report: ReadReport) -> str:
    """All that was skipped: 3 empty, 285 left out by template 'good or bad'; nothing where nothing was.

    A template is called by its name: its text is long.
    """
    names = _templates(task)
    reasons = ((names.get(reason, reason), count) for reason, count in sorted(report.skipped.items()))
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons)


def none_left(task: Task, report: ReadReport) -> str | None:
    """Why a part without an example has none, where the preprocessors left out all that was read; else None."""
    if not report.documents or not any(reason.startswith(BY) for reason in report.skipped):
        return None
    what = (
        f"its only {report.noun} was" if report.documents == 1 else f"all {plural(report.documents, report.noun)} were"
    )
    needs = _NEEDS if _templates(task).keys() & report.skipped.keys() else ""
    return f"{what} left out by its preprocessors: {skipped(task, report)}{needs}"


def _templates(task: Task) -> Mapping[str, str]:
    """The reason of a report that each template of a task is, and how it is told."""
    rendering = (function for function in task.preprocessors if function.name == RENDERING)
    return {BY + str(one): f"{BY}template {one.arguments['name']!r}" for one in rendering}
