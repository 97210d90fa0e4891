"""Differences between two runs as a table, for a terminal or a pipe."""

import re
from collections.abc import Sequence
from itertools import groupby

from rich.table import Table as RichTable
from rich.text import Text

from spanloom.report.differences import Difference
from spanloom.report.terminal import Page
from spanloom.report.visible import visible

_LONGEST = 60
"""Characters of a value that is shown in a column; longer ones stand in lines of their own."""
_HASH = re.compile(r"[0-9a-f]{40,}")


def difference_text(found: Sequence[Difference], first: str, second: str, *, width: int | None, colour: bool) -> str:
    """Tables of settings, data and versions. `width` in columns; None: lines are not broken."""
    page = Page(width, colour)
    shown: list[Text | RichTable] = []
    for about, group in groupby(found, lambda one: one.about):
        table = RichTable(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for name in (about, first, second):
            table.add_column(Text(visible(name)), overflow="fold")
        long = []
        for one in group:
            cells = [_HASH.sub(_start, visible(text)) for text in one.shown]
            if max(map(len, cells)) <= _LONGEST and not isinstance(one.first, list | dict):
                table.add_row(Text(f"  {visible(one.name)}"), *map(Text, cells))
            else:
                long.append(Text(f"  {visible(one.name)}: {visible(one.text or f'{one.shown[0]} -> {one.shown[1]}')}"))
        shown += [table, *long]
    return "".join(page.lines(one, width=width or 1_000_000) for one in shown)


def _start(found: re.Match[str]) -> str:
    """Enough of a hash to tell it from others."""
    return found[0][:12]
