"""RowFiles: rows with every column of jsonl, csv, tsv and parquet files."""

from collections.abc import Iterator
from typing import Any

from spanloom.settings.row_sources import RowFiles
from spanloom.tasks.documents import read_rows
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.heldout import Split
from spanloom.tasks.parts import files_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport


def read_row_files(source: RowFiles, split: Split, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The rows in the order of the files: of tables texts, of JSON and parquet what they hold. Raises BadInputError."""
    intake = Intake(report, source.errors, source.encoding)
    for path in files_of(source, split, report):
        with intake.file_errors():
            kind = format_of(path, source.format)
            if kind == "txt":
                fix = "Say --format tsv if it is a table, or read its lines with TextFiles"
                raise BadInputError(path, "text has no columns", fix, reason="no table")
            for _, row in read_rows(path, kind, None, source.header, intake):
                yield dict(row)
