"""PairFiles: inputs and targets out of tables, JSON lines and parquet."""

from collections.abc import Iterator, Sequence

from spanloom.settings.task import PairFiles
from spanloom.tasks import templates
from spanloom.tasks.documents import Documents, read_rows, render_all
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport


def read_pairs(source: PairFiles, files: Sequence[str], report: ReadReport) -> Iterator[Documents]:
    """The pairs of these files, {"inputs": ..., "targets": ...}, some at a time, in order.

    Raises BadInputError, see `spanloom.tasks.sources`.
    """
    intake = Intake(report, source.errors, source.encoding)
    columns = {"inputs": templates.parse(source.inputs), "targets": templates.parse(source.targets)}
    wanted = list(dict.fromkeys(name for template in columns.values() for name in template.fields))
    for path in files:
        with intake.file_errors():
            kind = format_of(path, source.format)
            if kind == "txt":
                raise BadInputError(path, "text has no columns", "Say --format tsv if it is a table", reason="no table")
            rows = read_rows(path, kind, wanted, source.header, intake)
            yield from render_all(rows, columns, path, intake)
