"""The data of a run as one page that needs nothing else: no scripts, no other files, readable anywhere."""

from collections.abc import Iterator
from html import escape

from spanloom.pipeline.facts.batch import BatchFacts, Row
from spanloom.pipeline.facts.pieces import Pieces
from spanloom.pipeline.facts.run import RunFacts, ShownTask
from spanloom.report import numbers
from spanloom.report.histogram import svg
from spanloom.report.html import table, text
from spanloom.report.marks import LEGEND, Word, words
from spanloom.report.style import CSS, SPAN_COLOURS
from spanloom.report.visible import NEWLINE, visible

_MOST_ROWS = 256


def page(facts: RunFacts, *, ids: bool = False, batch: bool = False) -> str:
    """The page, HTML. `ids`: with token ids; `batch`: with the rows of the first batch."""
    title = escape(visible(f"Data of {facts.name}"))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>\n{CSS}\n</style></head>\n<body>\n<h1>{title}</h1>",
            f"<p>{text(numbers.head(facts))}</p>\n<p>{text(numbers.batch_line(facts))}</p>",
            *(f'<p class="warning">{text(warning)}</p>' for warning in facts.warnings),
            "<h2>Tasks</h2>",
            _table(numbers.amounts(facts)),
            "<h2>Lengths</h2>",
            _table(numbers.lengths(facts)),
            *(f'<p class="note">{text(note)}</p>' for note in numbers.notes(facts)),
            *(_histograms(facts, one) for one in facts.tasks),
            *_examples(facts, ids),
            *(_batch(facts.batch, ids) if batch else ()),
            "</body></html>\n",
        ]
    )


def _table(made: numbers.Table) -> str:
    return table(*made, numbers.NAMES)


def _histograms(facts: RunFacts, one: ShownTask) -> str:
    sides = zip(("inputs", "targets"), facts.widths.values(), strict=True)
    return "".join(svg(visible(f"{one.facts.name}, {side}"), one.facts.lengths[side], row) for side, row in sides)


def _examples(facts: RunFacts, ids: bool) -> Iterator[str]:
    if not any(one.examples for one in facts.tasks):
        return
    yield f'<h2>Examples</h2>\n<p class="note">{text(LEGEND)}</p>'
    for one in facts.tasks:
        for number, example in enumerate(one.examples):
            yield f"<h3>{text(numbers.example_line(one, number, example))}</h3>\n{_sides(example.by_side, ids)}"


def _sides(sides: dict[str, Pieces], ids: bool) -> str:
    found = []
    for side, pieces in sides.items():
        if pieces:
            shown = "".join(map(_word, words(pieces)))
            found.append(f'<dt>{text(side)}</dt><dd class="text" dir="auto">{shown}</dd>')
            if ids:
                found.append(f'<dt>ids</dt><dd class="ids">{_ids(pieces)}</dd>')
    return f"<dl>{''.join(found)}</dl>"


def _word(word: Word) -> str:
    shown = escape(word.text)
    match word.role:
        case "end":
            return ""
        case "begin":
            return f'<bdi class="{_class(word)}" dir="ltr">{word.span}</bdi>'
        case "text" | "span":
            broken = shown.replace(NEWLINE, f"{NEWLINE}<br>")
            return f'<span class="{_class(word)}">{broken}</span>' if word.role == "span" else broken
    return f'<bdi class="{_class(word)}" dir="ltr">{shown}</bdi>'


def _class(word: Word) -> str:
    return word.role if word.span is None else f"{word.role} s{word.span % SPAN_COLOURS}"


def _ids(pieces: Pieces) -> str:
    found = []
    for piece in pieces:
        row = " ".join(map(str, piece.ids))
        found.append(row if piece.span is None else f'<span class="span s{piece.span % SPAN_COLOURS}">{row}</span>')
    return " ".join(found)


def _batch(batch: BatchFacts, ids: bool) -> Iterator[str]:
    yield "<h2>The first training batch</h2>"
    for row in batch.rows[:_MOST_ROWS]:
        sides = {
            f"{segment.number} {side}" if batch.is_packed else side: pieces
            for segment in row.segments
            for side, pieces in segment.pieces.items()
        }
        yield f"<p>{_row(batch, row)}</p>" + (_sides(sides, ids) if any(sides.values()) else "")
    if (more := len(batch.rows) - _MOST_ROWS) > 0:
        yield f"<p>and {more:,} rows more</p>"


def _row(batch: BatchFacts, row: Row) -> str:
    """A bar for each side, in which every segment has its part."""
    meters = []
    for side, width in batch.widths.items():
        parts = "".join(
            f'<i class="s{segment.number % SPAN_COLOURS}" style="width:{100 * segment.lengths[side] / width:.2f}%" '
            f'title="{segment.lengths[side]:,} tokens"></i>'
            for segment in row.segments
        )
        meters.append(f'{side} <span class="meter">{parts}</span>')
    return f"row {row.number} {' '.join(meters)} {text(numbers.row_line(batch, row))}"
