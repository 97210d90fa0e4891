"""The documents of a task, as its store is made of them: of a source's text, or of rows for preprocessors."""

from collections.abc import Iterator, Mapping

from spanloom.settings.task import Task, uses_rows
from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.rows import rows_of
from spanloom.tasks.sources import read_parts


def read_task(task: Task, reports: Mapping[Split, ReadReport]) -> Iterator[tuple[Split, Documents]]:
    """The documents of the parts that `reports` names, see `read_parts`; packed rows where the task uses rows.

    What a preprocessor will make of a document never moves it from one part into the other.
    """
    for split, documents in read_parts(task.source, reports, task.deduplicate):
        yield split, rows_of(documents) if uses_rows(task) else documents
