"""A chart as a picture that a page holds itself (inline SVG), as it stands before a script touches it, and on paper."""

import math
from collections.abc import Sequence

import numpy as np

from spanloom.report.charts import Chart, Line
from spanloom.report.html import text
from spanloom.report.metrics import Float64Array

WIDTH, HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 8, 24
EARLY, LONG = 0.02, 100
"""The share of the steps whose values do not count in curves of so many points; the page's script has the same."""
_FAR = 100.0
COLOURS = 8
"""Colours before they come round again; then lines are dashed."""


def svg(chart: Chart) -> str:
    """The picture: axes, borders of stages, and each line, with a band from its lowest to its highest value."""
    x0, x1, y0, y1 = extent(chart.lines)

    def across(steps: Float64Array) -> Float64Array:
        return _LEFT + (steps - x0) / (x1 - x0) * (WIDTH - _LEFT - _RIGHT)

    def up(values: Float64Array) -> Float64Array:
        # Halves: the distance of the largest numbers is none.
        shares = np.clip((values / 2 - y0 / 2) / (y1 / 2 - y0 / 2), -_FAR, _FAR)
        return HEIGHT - _BOTTOM - shares * (HEIGHT - _TOP - _BOTTOM)

    parts = []
    for tick in ticks(y0, y1, 5):
        y = float(up(np.array(tick)))
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for tick in ticks(x0, x1, 6):
        at = float(across(np.array(tick)))
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - 7}" text-anchor="middle">{short(tick)}</text>')
    for step, label in chart.borders:
        at = float(across(np.array(step)))
        parts.append(f'<line class="border" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        parts.append(f'<text x="{at + 3:.1f}" y="{_TOP + 10}">{text(label)}</text>')
    for line in chart.lines:
        shown, colour = line.columns, f"c{line.colour % COLOURS}"
        x = across(shown.steps)
        if shown.is_band:
            parts += [f'<path class="band {colour}" d="{d}"/>' for d in _bands(x, up(shown.low), up(shown.high))]
        dashed = " dashed" if line.is_reference or line.colour >= COLOURS else ""
        parts.append(f'<path class="line {colour}{dashed}" d="{_path(x, up(shown.mean))}"/>')
    label = text(f"{chart.title}{f', {chart.unit}' if chart.unit else ''}, over steps {x0:,.0f} to {x1:,.0f}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def extent(lines: Sequence[Line]) -> tuple[float, float, float, float]:
    """First and last step, lowest and highest value, apart from each other.

    Of long curves the values of the first steps do not count: a loss falls so steeply there that nothing would be seen
    of all the rest.
    """
    steps = np.concatenate([line.columns.steps for line in lines])
    begins = steps.min() + EARLY * (steps.max() - steps.min()) if len(steps) else 0.0
    shown = [
        (line.columns, line.columns.steps >= (begins if len(line.columns.steps) >= LONG else -1)) for line in lines
    ]
    values = np.concatenate([edge[late] for one, late in shown for edge in (one.low, one.high)])
    values = values[np.isfinite(values)]
    x0, x1 = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
    y0, y1 = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if x0 == x1:
        x0, x1 = x0 - 1, x1 + 1
    if not y1 / 2 - y0 / 2 > 0:
        margin = abs(y0) * 0.05 or 1.0
        y0, y1 = y0 - margin, y1 + margin
    return x0, x1, y0, y1


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between two others, about so many."""
    raw = (high / about) - (low / about)
    if not (math.isfinite(raw) and raw > 0):
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    if not power:
        return [low, high]
    step = next((power * factor for factor in (1, 2, 5) if power * factor >= raw), power * 10)
    first = math.ceil(low / step)
    found = [number * step for number in range(first, first + 3 * about) if number * step <= high + step * 1e-9]
    return found or [low, high]


def short(value: float) -> str:
    """A number in few characters, for an axis."""
    size = abs(value)
    for limit, divisor, letter in ((1e15, 0, ""), (1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{value / divisor:.4g}{letter}" if divisor else f"{value:.2g}"
    if size and size < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4g}"


def _path(x: Float64Array, y: Float64Array) -> str:
    """A line through the points, broken where a value is none; a point alone becomes a dot."""
    return "".join(_stretch(x[part], y[part]) for part in _known(y))


def _stretch(x: Float64Array, y: Float64Array) -> str:
    points = [f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    return f"M{'L'.join(points)}" if len(points) > 1 else f"M{points[0]}h.01"


def _bands(x: Float64Array, low: Float64Array, high: Float64Array) -> list[str]:
    there_and_back = []
    for part in _known(low):
        edges = np.concatenate([x[part], x[part][::-1]]), np.concatenate([high[part], low[part][::-1]])
        there_and_back.append(_stretch(*edges) + "Z")
    return there_and_back


def _known(values: Float64Array) -> list[slice]:
    """The stretches without a gap."""
    known = np.isfinite(values)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(np.int8)))
    return [slice(int(start), int(stop)) for start, stop in zip(changes[::2], changes[1::2], strict=True)]
