"""JSON lines: one object a line."""

import json
from collections.abc import Iterator
from typing import Any

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.text_lines import TextFile


def json_rows(file: TextFile, intake: Intake) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line.

    Raises BadInputError for what is no JSON object, unless bad input is skipped.
    """
    for block in file.line_blocks():
        for batch in file.decode_block(block):
            batch.reverse()
            while batch:
                number, line = batch.pop()
                row = _parse(line, file.path, number, intake)
                if row is not None:
                    rows = [row]
                    del line, row  # long ones are the caller's alone
                    yield number, rows.pop()


def _parse(line: str, path: str, number: int, intake: Intake) -> dict[str, Any] | None:
    fix = ""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        what = f"broken JSON ({error}); the line begins {line[:60]!r}"
        if number == 1 and line.strip() in ("{", "["):
            what = "the file is one JSON text over many lines, not one object a line"
            fix = "Rewrite it: jq -c '.[]' FILE > FILE.jsonl (for a list)"
        intake.refuse(BadInputError(f"{path}:{number}", what, fix, reason="broken JSON"))
        return None
    if isinstance(row, dict):
        return row
    if isinstance(row, list) and number == 1:
        fix = "If the file is one list, rewrite it: jq -c '.[]' FILE > FILE.jsonl"
    what = f"a JSON {type(row).__name__} where an object is expected: {line[:60]!r}"
    intake.refuse(BadInputError(f"{path}:{number}", what, fix, reason="broken JSON"))
    return None
