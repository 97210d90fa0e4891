"""The data of a run as text: in colour on a terminal, with marks in a pipe."""

import io
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from spanloom.pipeline.facts.batch import BatchFacts, Row
from spanloom.pipeline.facts.pieces import LaidOut, Pieces
from spanloom.pipeline.facts.run import RunFacts, ShownTask
from spanloom.report import numbers
from spanloom.report.marks import LEGEND, words
from spanloom.report.visible import visible

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
_MOST_ROWS = 64
_BAR = 32
_UNWRAPPED = 1_000_000


class Page:
    """Where text is laid out: how wide, and whether in colour."""

    def __init__(self, width: int | None, colour: bool):
        """`width` in columns; None: lines are never broken."""
        self.colour = colour
        self._width = width or _UNWRAPPED

    def lines(self, *parts: Text | RichTable | str, width: int | None = None) -> str:
        """Parts under one another, as they are to be written."""
        out = io.StringIO()
        console = Console(
            file=out,
            width=width or self._width,
            force_terminal=self.colour,
            color_system="standard" if self.colour else None,
            no_color=not self.colour,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
        )
        for part in parts:
            console.print(part, soft_wrap=self._width == _UNWRAPPED and not isinstance(part, RichTable))
        return "".join(line.rstrip() + "\n" for line in out.getvalue().split("\n")[:-1])

    def labelled(self, label: str, text: Text) -> Text | RichTable:
        """A label, and text beside it that stays in its own column."""
        if self._width == _UNWRAPPED:
            return Text(f"  {label:<12} ") + text
        grid = RichTable.grid(padding=(0, 1))
        grid.add_column(width=14, no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        grid.add_row(f"  {label}", text)
        return grid


def render(
    facts: RunFacts, *, width: int | None, colour: bool, ids: bool = False, batch: bool = False
) -> Iterator[str]:
    """The text, section by section.

    `width` in columns, None: lines are not broken; `ids`: with token ids; `batch`: with rows of the first batch.
    """
    page = Page(width, colour)
    if any(one.examples for one in facts.tasks) or batch:
        yield page.lines(Text(LEGEND, style="dim"), "")
    for one in facts.tasks:
        for number, example in enumerate(one.examples):
            yield page.lines(*_example(page, one, number, example, ids), "")
    if batch:
        yield from _batch(page, facts.batch, ids)
    yield page.lines(numbers.head(facts), numbers.batch_line(facts), "")
    for table in (numbers.amounts(facts), numbers.lengths(facts)):
        yield page.lines(_table(table), "", width=_UNWRAPPED)
    yield page.lines(*(Text(note, style="dim") for note in numbers.notes(facts)))
    if facts.warnings:
        yield page.lines("", *(Text(f"warning: {visible(text)}", style="yellow") for text in facts.warnings))


def table_text(table: numbers.Table, *, colour: bool = False) -> str:
    """A table as lines, however wide."""
    return Page(None, colour).lines(_table(table), width=_UNWRAPPED)


def _example(page: Page, task: ShownTask, number: int, example: LaidOut, ids: bool) -> Iterator[Text | RichTable | str]:
    yield Text(numbers.example_line(task, number, example), style="bold")
    for side, pieces in example.by_side.items():
        if pieces:
            yield page.labelled(side, _coloured(page, pieces))
            if ids:
                yield page.labelled("  ids", _ids(pieces))


def _batch(page: Page, batch: BatchFacts, ids: bool) -> Iterator[str]:
    yield page.lines(Text("the first training batch", style="bold"))
    for row in batch.rows[:_MOST_ROWS]:
        parts: list[Text | RichTable | str] = [_row(page, batch, row)]
        for segment in row.segments:
            for side, pieces in segment.pieces.items():
                if pieces:
                    label = f"{segment.number} {side}" if batch.is_packed else side
                    parts.append(page.labelled(label, _coloured(page, pieces)))
                    if ids:
                        parts.append(page.labelled("  ids", _ids(pieces)))
        yield page.lines(*parts)
    if (more := len(batch.rows) - _MOST_ROWS) > 0:
        yield page.lines(f"  and {more:,} rows more")
    yield page.lines("")


def _row(page: Page, batch: BatchFacts, row: Row) -> Text:
    """A bar for each side, in which segments take turns, and how full they are."""
    line = Text(f"row {row.number:<4}")
    for side, width in batch.widths.items():
        line.append_text(_bar(page, [segment.lengths[side] for segment in row.segments], width))
        line.append(" ")
    return line.append(visible(numbers.row_line(batch, row)))


def _bar(page: Page, lengths: list[int], width: int) -> Text:
    bar, owners = Text("["), []
    for number, length in enumerate(lengths):
        owners += [number] * length
    for cell in range(_BAR):
        place = cell * width // _BAR
        if place >= len(owners):
            bar.append(".", style="dim")
        elif page.colour:
            bar.append("\u2588", style=_COLOURS[owners[place] % len(_COLOURS)])
        else:
            bar.append("=#"[owners[place] % 2])
    return bar.append("]")


def _coloured(page: Page, pieces: Pieces) -> Text:
    line = Text()
    for word in words(pieces):
        if page.colour and word.role in ("begin", "end"):
            continue
        line.append(word.text, style=_style(word.role, word.span))
    return line


def _ids(pieces: Pieces) -> Text:
    styled = [Text(" ".join(map(str, piece.ids)), style=_style(piece.kind, piece.span)) for piece in pieces]
    return Text(" ").join(styled)


def _style(role: str, span: int | None) -> str:
    colour = "" if span is None else _COLOURS[span % len(_COLOURS)]
    match role:
        case "sentinel":
            return f"bold reverse {colour}"
        case "stray":
            return "bold reverse red"
        case "eos":
            return f"dim {colour}"
        case "mode":
            return "bold"
    return f"underline {colour}" if colour else ""


def _table(table: numbers.Table) -> RichTable:
    headings, rows = table
    made = RichTable(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    for heading in headings:
        is_name = heading in numbers.NAMES
        made.add_column(heading, justify="left" if is_name else "right", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
