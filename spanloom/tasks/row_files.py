"""RowFiles: rows with every column of jsonl, csv, tsv and parquet files."""

from collections.abc import Iterator, Mapping
from typing import Any

from spanloom.settings.row_sources import RowFiles
from spanloom.tasks.documents import read_rows
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.heldout import Split
from spanloom.tasks.parts import files_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.rows import RowError, pack_row


def read_row_files(source: RowFiles, split: Split, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The rows in the order of the files: of tables texts, of JSON and parquet what they hold. Raises BadInputError."""
    intake = Intake(report, source.errors, source.encoding)
    for path in files_of(source, split, report):
        with intake.file_errors():
            kind = format_of(path, source.format)
            if kind == "txt":
                fix = "Say --format tsv if it is a table, or read its lines with TextFiles"
                raise BadInputError(path, "text has no columns", fix, reason="no table")
            for number, row in read_rows(path, kind, None, source.header, intake):
                if kind != "jsonl" or _is_kept(row, f"{path}:{number}", intake):
                    yield dict(row)


def _is_kept(row: Mapping[str, Any], where: str, intake: Intake) -> bool:
    """Whether a row can be packed: JSON spells halves of characters, numbers of any size and any depth of lists.

    Raises BadInputError, unless bad input is skipped.
    """
    try:
        pack_row(row)
    except RowError as error:
        intake.refuse(BadInputError(where, str(error), reason="row that cannot be kept"))
        return False
    return True
