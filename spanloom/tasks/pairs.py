"""PairFiles: inputs and targets out of tables, JSON lines and parquet."""

from collections.abc import Iterator

from spanloom.settings.task import PairFiles
from spanloom.tasks import templates
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.heldout import Split
from spanloom.tasks.parts import files_and_part
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.rows import read_rows, render_all


def read_pairs(source: PairFiles, split: Split, report: ReadReport) -> Iterator[list[dict[str, str]]]:
    """The pairs of a part, {"inputs": ..., "targets": ...}, some at a time, in the order of the files.

    Raises BadInputError, see `spanloom.tasks.sources`.
    """
    intake = Intake(report, source.errors, source.encoding)
    columns = {"inputs": templates.parse(source.inputs), "targets": templates.parse(source.targets)}
    wanted = list(dict.fromkeys(name for template in columns.values() for name in template.fields))
    files, part = files_and_part(source, split, report)
    for path in files:
        with intake.file_errors():
            kind = format_of(path, source.format)
            if kind == "txt":
                raise BadInputError(path, "text has no columns", "Say --format tsv if it is a table", reason="no table")
            rows = read_rows(path, kind, wanted, source.header, part, intake)
            for pairs in render_all(rows, columns, path, intake):
                report.give([text for pair in pairs for text in pair.values()])
                report.documents += len(pairs)
                yield pairs
