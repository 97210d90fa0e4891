"""Rows of any file format, and the documents that templates make of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spanloom.tasks.blank import is_blank
from spanloom.tasks.json_lines import json_rows
from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.tables import Header, table_rows
from spanloom.tasks.templates import FieldError, Template
from spanloom.tasks.text_lines import TextFile

Row = tuple[int, Mapping[str, Any]]
"""Line number (parquet: row number), from 1, and fields."""

Documents = dict[str, list[bytes]]
"""Some documents: their texts in UTF-8, of each field as many."""

_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 1024


def read_rows(path: str, kind: str, wanted: Sequence[str] | None, header: Header, intake: Intake) -> Iterator[Row]:
    """The rows of a jsonl, csv, tsv or parquet file, of all columns where None is wanted. Raises BadInputError."""
    if kind == "parquet":
        from spanloom.tasks.parquet_rows import parquet_rows

        yield from parquet_rows(path, wanted, intake)
        return
    file = TextFile(path, intake)
    if kind == "jsonl":
        yield from json_rows(file, intake)
    else:
        yield from table_rows(file, "," if kind == "csv" else "\t", wanted, header, intake)


def render_all(
    rows: Iterable[Row], templates: Mapping[str, Template], path: str, intake: Intake
) -> Iterator[Documents]:
    """Documents out of rows, some at a time. Rows in which a column is blank are counted as 'empty COLUMN'.

    Raises BadInputError for rows without a field, or with one that is no text, unless bad input is skipped.
    """
    batch: Documents = {name: [] for name in templates}
    size = count = 0
    for number, row in rows:
        try:
            texts = {name: template.render(row) for name, template in templates.items()}
            encoded = [_utf8(text) for text in texts.values()]
        except FieldError as error:
            intake.refuse(BadInputError(f"{path}:{number}", str(error), error.fix, reason=error.reason))
            continue
        blank = [name for name, text in texts.items() if is_blank(text)]
        if blank:
            intake.report.skip("empty" if len(templates) == 1 else f"empty {blank[0]}", f"{path}:{number}")
            continue
        for column, text in zip(batch.values(), encoded, strict=True):
            column.append(text)
            size += len(text)
        count += 1
        if count >= _BATCH_ROWS or size >= _BATCH_BYTES:
            del row, texts, text
            yield batch
            batch, size, count = {name: [] for name in templates}, 0, 0
    if count:
        yield batch


def _utf8(text: str) -> bytes:
    """The text's bytes. JSON escapes can spell half of a character; such text has no UTF-8."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = ord(text[error.start])
        raise FieldError(f"half a character (lone surrogate \\u{bad:04x}) in the text", "", "undecodable") from error
