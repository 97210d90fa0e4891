"""Rows of any file format, and the texts that templates make of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from spanloom.tasks.heldout import Part
from spanloom.tasks.json_lines import json_rows
from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.tables import Header, table_rows
from spanloom.tasks.templates import FieldError, Template
from spanloom.tasks.text_lines import TextFile

Row = tuple[int, Mapping[str, Any]]
"""Line number (parquet: row number), from 1, and fields."""

_BATCH_CHARACTERS = 1 << 20
_BATCH_ROWS = 1024


def read_rows(path: str, kind: str, wanted: Sequence[str], header: Header, part: Part, intake: Intake) -> Iterator[Row]:
    """The rows of a part in a jsonl, csv, tsv or parquet file. Raises BadInputError."""
    if kind == "parquet":
        from spanloom.tasks.parquet_rows import parquet_rows

        yield from parquet_rows(path, wanted, part, intake)
        return
    file = TextFile(path, intake)
    if kind == "jsonl":
        yield from json_rows(file, part, intake)
    else:
        yield from table_rows(file, "," if kind == "csv" else "\t", wanted, header, part, intake)


def render_all(
    rows: Iterable[Row], columns: Mapping[str, Template], path: str, intake: Intake
) -> Iterator[list[dict[str, str]]]:
    """Examples out of rows, some at a time. Rows in which a column is blank are counted as 'empty COLUMN'.

    Raises BadInputError for rows without a field, or with one that is no text, unless bad input is skipped.
    """
    batch: list[dict[str, str]] = []
    characters = 0
    for number, row in rows:
        try:
            example = {name: template.render(row) for name, template in columns.items()}
            for text in example.values():
                _check_surrogates(text)
        except FieldError as error:
            intake.refuse(BadInputError(f"{path}:{number}", str(error), error.fix, reason=error.reason))
            continue
        if blank := [name for name, text in example.items() if not text or text.isspace()]:
            intake.report.skip("empty" if len(columns) == 1 else f"empty {blank[0]}", f"{path}:{number}")
            continue
        batch.append(example)
        characters += sum(map(len, example.values()))
        if len(batch) >= _BATCH_ROWS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _check_surrogates(text: str) -> None:
    """JSON escapes can spell half of a character; such text has no UTF-8."""
    try:
        text.isascii() or text.encode("utf-8")
    except UnicodeEncodeError as error:
        bad = ord(text[error.start])
        raise FieldError(f"half a character (lone surrogate \\u{bad:04x}) in the text", "", "undecodable") from error
