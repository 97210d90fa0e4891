"""Tables as text: csv with quotes as RFC 4180 has them, tsv without quoting, with or without a header row."""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from typing import Literal

from spanloom.tasks import templates
from spanloom.tasks.blank import is_blank, is_blank_utf8
from spanloom.tasks.read_report import BadInputError, Intake, plural
from spanloom.tasks.shown import shown
from spanloom.tasks.text_lines import TextFile

Header = Literal["auto", "yes", "no"]
Record = tuple[int, list[str]]
"""Line number and cells."""

_LONGEST_FIELD = 2**31 - 1
_NAME = 40  # characters of what may be a column's name
_FEW = 5  # cells that are shown
_BY_NUMBER = "If the table has no header row, number its columns, from 0"


def table_rows(
    file: TextFile, delimiter: str, wanted: Sequence[str] | None, header: Header, intake: Intake
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, {wanted column: cell}) of each row; of all columns where None is wanted, those without a name (all,
    where there is no header) called by their number, from 0.

    Raises BadInputError for columns that do not exist; and, unless bad input is skipped, for rows with more or fewer
    cells than the first, and quotes that do not close.
    """
    by_name = header == "yes" or (header == "auto" and not all(name.isdecimal() for name in wanted or ()))
    records = _csv_records(file, intake, by_name) if delimiter == "," else _tsv_records(file, by_name)
    first = next(records, None)
    if first is None:
        return
    where = f"{file.path}:{first[0]}"
    if wanted is None:
        columns, has_header = _all_columns(first[1], header, where), header != "no"
    else:
        columns, has_header = _columns(first[1], wanted, header, where)
    width = len(first[1])
    if not has_header:
        if wanted is not None:
            told = f"{file.path}: no header row; the first row of data is {_shown(first[1])}"
            intake.report.note("no header row", told)
        records = chain([first], records)
    for line, cells in records:
        if len(cells) != width:
            where = "the header" if has_header else "the first row"
            what = f"{plural(len(cells), 'column')} where {where} has {width}: {_shown(cells)}"
            intake.refuse(BadInputError(f"{file.path}:{line}", what, reason="ragged row"))
            continue
        yield line, {name: cells[place] for name, place in columns.items()}


def _all_columns(first: list[str], header: Header, where: str) -> dict[str, int]:
    """The place of every column, by name."""
    names = [str(place) if header == "no" else name or str(place) for place, name in enumerate(first)]
    if twice := [name for name in names if names.count(name) > 1]:
        what = f"{names.count(twice[0])} columns are named {shown(twice[0])}"
        raise BadInputError(where, what, "Rename all but one, or set the header to 'no'", reason="columns of one name")
    return {name: place for place, name in enumerate(names)}


def _columns(first: list[str], wanted: Sequence[str], header: Header, where: str) -> tuple[dict[str, int], bool]:
    """The place of each wanted column, and whether the first row is a header."""
    absent = [name for name in wanted if name not in first]
    numbers = [name for name in wanted if name.isdecimal()]
    has_header = header == "yes" or (header == "auto" and not absent)
    if header == "auto" and absent and len(numbers) < len(wanted):
        raise _no_such_column(first, absent, where)
    places = {}
    for name in wanted:
        if has_header and first.count(name) == 1:
            places[name] = first.index(name)
        elif has_header and first.count(name) > 1:
            what = f"{first.count(name)} columns are named {shown(name)}"
            raise BadInputError(where, what, "Use column numbers, from 0", reason="columns of one name")
        elif not name.isdecimal() and header == "no":
            raise BadInputError(
                where, f"{name!r} is no column number, and the header is set to 'no'", "Use numbers, from 0, or set "
                "--header yes", reason="missing column",
            )  # fmt: skip
        elif not name.isdecimal():
            raise _no_such_column(first, absent, where)
        elif int(name) >= len(first):
            what = f"no column {name}: the table has {len(first)}, numbered from 0; the first row is {_shown(first)}"
            raise BadInputError(where, what, "Use a number that exists", reason="missing column")
        else:
            places[name] = int(name)
    return places, has_header


def _no_such_column(first: list[str], absent: list[str], where: str) -> BadInputError:
    name = next(name for name in absent if not name.isdecimal())
    error = templates.missing(name, [cell for cell in first if len(cell) <= _NAME], "column")
    what, fix = f"no column {name!r}; the first row is {_shown(first)}", _BY_NUMBER
    other = next((mark for mark in "\t;,|" if mark in first[0]), "") if len(first) == 1 else ""
    if other:
        kind = {"\t": "--format tsv", ",": "--format csv"}.get(other, "turn them into commas or tabs first")
        fix = f"The cells seem to be parted by {other!r}: {kind}"
    elif any(absent_name.isdecimal() for absent_name in absent):
        fix = f"Name all columns by the header row, or all by number, from 0 (the table has {len(first)})"
    elif "did you mean" in str(error):
        what, fix = str(error), f"{error.fix}. {_BY_NUMBER}"
    elif {"inputs", "targets"} <= set(absent):
        fix = "If this is a header row, name two of its columns with --inputs and --targets"
        if len(first) >= 2:
            fix = f"If the table has no header row: --inputs 0 --targets 1. {fix}"
    elif absent == ["text"]:
        fix = "If the table has no header row, number its columns, from 0: --field 0"
        fix += "" if len(first) == 1 else ". If this is a header row, name one of its columns with --field"
    return BadInputError(where, what, fix, reason="missing column")


def _blank_header(path: str, line: int) -> BadInputError:
    fix = "Name the columns there; or remove the row, and number them, from 0, if no other row names them"
    return BadInputError(f"{path}:{line}", "the cells of the header row are all blank", fix, reason="blank header")


def _tsv_records(file: TextFile, by_name: bool) -> Iterator[Record]:
    """Lines cut at tabs. Quotes are characters like any other: TSV in the wild holds unbalanced ones."""
    for block in file.line_blocks():
        if by_name and block.first_line == 1:
            leading = [line for line in takewhile(is_blank_utf8, block.lines()) if b"\t" in line]
            if leading:
                raise _blank_header(file.path, block.lines().index(leading[0]) + 1)
        for batch in file.decode_block(block):
            for number, line in batch:
                yield number, line.split("\t")


def _csv_records(file: TextFile, intake: Intake, by_name: bool) -> Iterator[Record]:
    if csv.field_size_limit() < _LONGEST_FIELD:
        csv.field_size_limit(_LONGEST_FIELD)  # documents are longer than the module's 128 KiB; it has no other way
    reader = csv.reader(file.lines_for_csv(), strict=True)
    is_first = True
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            span = f"{start}-{reader.line_num}" if reader.line_num > start else f"{start}"
            what = "a quote opens and never closes" if "unexpected end" in str(error) else f"broken CSV ({error})"
            fix = "If the file has no quoting, it may be a TSV: --format tsv" if "quote" in what else ""
            bad = BadInputError(f"{file.path}:{span}", what, fix, reason="broken CSV row")
            intake.refuse(bad, count=max(1, reader.line_num - start + 1))
            continue
        if all(map(is_blank, cells)):
            if by_name and is_first and len(cells) > 1:
                raise _blank_header(file.path, start)
            intake.report.skip("empty")
        elif all(map(_is_clean, cells)):
            is_first = False
            yield start, cells
        else:
            intake.report.skip("undecodable", f"{file.path}:{start}: invalid {file.encoding} in the row")


def _is_clean(cell: str) -> bool:
    """Whether no undecodable byte was smuggled through as a lone surrogate, see `TextFile.lines_for_csv`."""
    try:
        cell.isascii() or cell.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(cells: list[str]) -> str:
    return "(" + ", ".join(map(shown, cells[:_FEW])) + (", ...)" if len(cells) > _FEW else ")")
