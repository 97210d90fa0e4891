"""What pages are made of: text that is nothing but text, and tables."""

from collections.abc import Collection, Sequence
from html import escape

from spanloom.report.visible import visible


def text(words: str) -> str:
    """Text of the data as HTML that shows it: it can neither be markup nor hide."""
    return escape(visible(words))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], names: Collection[str] = ()) -> str:
    """A table that scrolls by itself where it is wider than the page; columns called `names` hold words."""
    words = {number for number, heading in enumerate(headings) if heading in names}

    def line(tag: str, cells: Sequence[str]) -> str:
        made = []
        for number, cell in enumerate(cells):
            kind = ' class="name"' if number in words else ""
            made.append(f"<{tag}{kind}>{text(cell)}</{tag}>")
        return f"<tr>{''.join(made)}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table><thead>{line("th", headings)}</thead>\n<tbody>{body}</tbody></table></div>'


def folded(summary: str, content: str, *, is_open: bool = False) -> str:
    """Content under a line that opens and closes it; `content` is HTML."""
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>{text(summary)}</summary>\n{content}</details>"
