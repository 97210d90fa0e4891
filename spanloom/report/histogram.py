"""Lengths as a picture that a page holds itself (inline SVG)."""

from html import escape

from spanloom.pipeline.facts.lengths import Lengths

_WIDTH, _HEIGHT, _BASE = 320, 96, 78


def svg(name: str, lengths: Lengths, row: int) -> str:
    """Bars of examples by length, a line where rows of `row` tokens end; bars of what is cut stand out."""
    right = max(lengths.longest, row, 1)
    highest = max(lengths.histogram.counts, default=0) or 1
    edges = lengths.histogram.edges
    bars = [
        f'<rect class="{"over" if start >= lengths.width else "bar"}" x="{_x(start, right):.1f}" '
        f'y="{_BASE - 70 * count / highest:.1f}" width="{max(_x(stop, right) - _x(start, right) - 0.6, 0.6):.1f}" '
        f'height="{70 * count / highest:.1f}"><title>{count:,} of {start:,.0f} to {stop:,.0f} tokens</title></rect>'
        for start, stop, count in zip(edges, edges[1:], lengths.histogram.counts, strict=False)
        if count
    ]
    about = "about " if lengths.is_sample else ""
    label = f"{name}: {about}{lengths.mean:,.1f} tokens on the mean, the longest {lengths.longest:,}, rows of {row:,}"
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(bars)}'
        f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_BASE}" y2="{_BASE}"/>'
        f'<line class="row" x1="{_x(row, right):.1f}" x2="{_x(row, right):.1f}" y1="0" y2="{_BASE}"/>'
        f'<text x="0" y="{_HEIGHT - 4}">0</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{right:,}</text>'
        f"</svg><figcaption>{escape(label)}</figcaption></figure>"
    )


def _x(tokens: float, right: int) -> float:
    return 1 + (_WIDTH - 2) * tokens / right
