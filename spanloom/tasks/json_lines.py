"""JSON lines: one object a line. Of a key that comes twice in an object the last value counts, as in Python."""

import json
from collections.abc import Iterator
from typing import Any

from spanloom.tasks.read_report import BadInputError, Intake
from spanloom.tasks.shown import shown
from spanloom.tasks.text_lines import TextFile

_LONG_NUMBER = 600  # digits, of which Python reads so many under any limit that it can be given


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


def _loads(line: str) -> Any:
    """The line's value; a whole number of more digits than Python reads is kept as it is written, as text."""
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(line, parse_int=lambda digits: int(digits) if len(digits) < _LONG_NUMBER else digits)


def _parse(line: str, path: str, number: int, intake: Intake) -> dict[str, Any] | None:
    fix = ""
    try:
        row = _loads(line)
    except (ValueError, RecursionError) as error:
        what = f"broken JSON ({error}); the line begins {shown(line)}"
        if number == 1 and line.strip() in ("{", "["):
            what = "the file is one JSON text over many lines, not one object a line"
            fix = "Rewrite it: jq -c '.[]' FILE > FILE.jsonl (for a list)"
        intake.refuse(BadInputError(f"{path}:{number}", what, fix, reason="broken JSON"))
        return None
    if isinstance(row, dict):
        return row
    if isinstance(row, list) and number == 1:
        fix = "If the file is one list, rewrite it: jq -c '.[]' FILE > FILE.jsonl"
    what = f"a JSON {type(row).__name__} where an object is expected: {shown(line)}"
    intake.refuse(BadInputError(f"{path}:{number}", what, fix, reason="broken JSON"))
    return None
