"""Results of an evaluation as tables, for a terminal or a pipe."""

from collections.abc import Sequence

from rich.table import Table as RichTable
from rich.text import Text

from spanloom.evaluation.result_rows import NAMES, TASK, Row, shown, table_of
from spanloom.report.terminal import Page


def evaluation_text(rows: Sequence[Row], *, width: int | None, colour: bool) -> str:
    """The table; what several templates or data sets are together is dimmed. `width` in columns; None: any."""
    page = Page(width, colour)
    head, *lines = table_of(rows)
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, justify="left" if name in NAMES else "right", overflow="fold")
    for row, cells in zip(shown(rows), lines, strict=True):
        table.add_row(*(Text(cell, style="" if row.kind == TASK else "dim") for cell in cells))
    return page.lines(table, width=width or 1_000_000)


def beside_text(table: Sequence[Sequence[str]], *, width: int | None, colour: bool) -> str:
    """A table of names and numbers, its header first: what was measured beside what is published."""
    page = Page(width, colour)
    head, *lines = table
    drawn = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(head):
        drawn.add_column(name, justify="right" if number else "left", overflow="fold")
    for cells in lines:
        drawn.add_row(*map(Text, cells))
    return page.lines(drawn, width=width or 1_000_000)
