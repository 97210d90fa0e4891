"""Differences between two runs as a table, for a terminal or a pipe."""

from collections.abc import Sequence

from rich.table import Table as RichTable
from rich.text import Text

from spanloom.report.differences import Difference
from spanloom.report.terminal import Page
from spanloom.report.visible import visible


def difference_text(found: Sequence[Difference], first: str, second: str, *, width: int | None, colour: bool) -> str:
    """The table, by settings, data and versions. `width` in columns; None: lines are not broken."""
    page = Page(width, colour)
    table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", visible(first), visible(second)):
        table.add_column(Text(name), overflow="fold")
    about = ""
    for one in found:
        if one.about != about:
            about = one.about
            table.add_row(Text(about, style="bold"), "", "")
        table.add_row(Text(f"  {visible(one.name)}"), *(Text(visible(text)) for text in _cells(one)))
    return page.lines(table, width=width or 1_000_000)


def _cells(one: Difference) -> tuple[str, str]:
    """Both sides; what is no simple value is told in one line, as a changed setting is elsewhere."""
    whole = isinstance(one.first, dict | list) or isinstance(one.second, dict | list)
    return (one.text, "") if whole and one.text else one.shown
