"""TextFiles: documents out of text, JSON lines, tables and parquet."""

from collections.abc import Iterator

from spanloom.settings.task import TextFiles
from spanloom.tasks import templates
from spanloom.tasks.file_lists import format_of
from spanloom.tasks.heldout import Part, Split
from spanloom.tasks.parts import files_and_part
from spanloom.tasks.read_report import Intake, ReadReport
from spanloom.tasks.rows import read_rows, render_all
from spanloom.tasks.text_lines import TextFile


def read_texts(source: TextFiles, split: Split, report: ReadReport) -> Iterator[list[str]]:
    """The texts of a part's documents, some at a time, in the order of the files.

    Raises BadInputError, see `spanloom.tasks.sources`.
    """
    intake = Intake(report, source.errors, source.encoding)
    template = templates.parse(source.field)
    files, part = files_and_part(source, split, report)
    for path in files:
        with intake.file_errors():
            kind = format_of(path, source.format)
            batches: Iterator[list[str]]
            if kind != "txt":
                rows = read_rows(path, kind, template.fields, "auto", part, intake)
                examples = render_all(rows, {"text": template}, path, intake)
                batches = ([example["text"] for example in batch] for batch in examples)
            elif source.unit == "document":
                batches = _whole_file(path, part, intake)
            else:
                batches = _lines(path, part, intake)
            for texts in batches:
                report.give(texts)
                report.documents += len(texts)
                yield texts


def _lines(path: str, part: Part, intake: Intake) -> Iterator[list[str]]:
    file = TextFile(path, intake)
    for block in file.line_blocks():
        yield from file.decode_texts(block, part.mask(block.count))


def _whole_file(path: str, part: Part, intake: Intake) -> Iterator[list[str]]:
    file = TextFile(path, intake)
    if not file.is_empty and part.mask(1)[0] and (text := file.whole()) is not None:
        if text.strip():
            yield [text]
        else:
            intake.report.skip("empty")
