import math
import re

import numpy as np
import pytest

from spanloom.report.charts import Chart, Line
from spanloom.report.downsample import columns_of
from spanloom.report.metrics import Curve
from spanloom.report.plot import extent, short, svg, ticks

pytestmark = pytest.mark.short


def line(values, steps=None, **more):
    steps = np.arange(1.0, len(values) + 1) if steps is None else np.array(steps, float)
    return Line("a", 0, columns_of(Curve(steps, np.array(values, float))), **more)


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (2.31, 2.64, [2.4, 2.5, 2.6]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (0, 1e308, [0, 2e307, 4e307, 6e307, 8e307, 1e308]),
        (1, 1, [1, 1]),
        (-1e308, 1e308, [-1e308, -5e307, 0, 5e307, 1e308]),
    ],
)
def test_ticks_are_round(low, high, found):
    assert ticks(low, high, 5) == pytest.approx(found)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "0"),
        (1500, "1500"),
        (20_000, "20k"),
        (1.2e9, "1.2G"),
        (1e-5, "1e-05"),
        (0.0123, "0.0123"),
        (1e300, "1e+300"),
    ],
)
def test_numbers_of_axes_are_short(value, found):
    assert short(value) == found


def test_a_line_lies_where_its_values_are_and_breaks_at_gaps():
    made = svg(Chart("x", "Loss <b>", "", (line([1, 2, math.nan, 3, math.nan, 1]),), ((3.0, "<i>de"),)))
    (path,) = re.findall(r'<path class="line c0" d="([^"]*)"/>', made)
    first, second, alone = path.split("M")[1:]
    assert first == "56.0,236.0L171.2,122.0" and second.startswith("401.6,8.0") and alone.endswith("h.01")
    assert "Loss &lt;b&gt;" in made and "&lt;i&gt;de" in made and "<b>" not in made


def test_the_steep_beginning_of_a_long_curve_does_not_decide_the_scale_but_a_later_peak_does():
    values = np.concatenate([np.linspace(100, 3, 10), np.full(990, 2.0)])
    assert extent([line(values)])[2:] == pytest.approx((1.9, 2.1))
    values[500] = 50
    assert extent([line(values)])[3] == 50
    assert extent([line([9, 8, 1])])[2:] == (1, 9)


@pytest.mark.parametrize("values", [[1], [math.nan], [math.inf, -math.inf], [1e308, -1e308], [0, 5e-324], [7, 7]])
def test_whatever_the_values_the_picture_has_numbers(values):
    made = svg(Chart("x", "x", "", (line(values),)))
    assert not re.search(r'(d|x1?|y1?)="[^"]*(nan|inf|e\+)', made)
