"""TextFiles: documents out of text, JSON lines, tables and parquet."""

from collections.abc import Iterator, Sequence

from spanloom.settings.task import TextFiles
from spanloom.tasks import templates
from spanloom.tasks.blank import is_blank
from spanloom.tasks.documents import Documents, read_rows, render_all
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.read_report import Intake, ReadReport
from spanloom.tasks.text_lines import TextFile


def read_texts(source: TextFiles, files: Sequence[str], report: ReadReport) -> Iterator[Documents]:
    """The documents of these files, {"text": ...}, some at a time, in order.

    Raises BadInputError, see `spanloom.tasks.sources`.
    """
    intake = Intake(report, source.errors, source.encoding)
    template = templates.parse(source.field)
    for path in files:
        with intake.file_errors():
            kind = format_of(path, source.format)
            if kind != "txt":
                rows = read_rows(path, kind, template.fields, "auto", intake)
                yield from render_all(rows, {"text": template}, path, intake)
            elif source.unit == "document":
                yield from _whole_file(path, intake)
            else:
                yield from _lines(path, intake)


def _lines(path: str, intake: Intake) -> Iterator[Documents]:
    file = TextFile(path, intake)
    for block in file.line_blocks():
        for texts in file.utf8_texts(block):
            yield {"text": texts}


def _whole_file(path: str, intake: Intake) -> Iterator[Documents]:
    file = TextFile(path, intake)
    if not file.is_empty and (text := file.whole()) is not None:
        if is_blank(text):
            intake.report.skip("empty")
        else:
            yield {"text": [text.encode("utf-8")]}
