import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from spanloom.pipeline.facts.lengths import summary
from spanloom.report.histogram import svg

pytestmark = pytest.mark.short


def drawn(lengths, width, row):
    figure = ET.fromstring(svg("a <b> & c", summary([np.array(lengths, np.int64)], width, is_sample=False), row))
    return figure, [
        (rect.get("class"), float(rect.get("x")), float(rect.get("height"))) for rect in figure.iter("rect")
    ]


def test_bars_are_as_high_as_there_are_examples_and_what_is_cut_stands_out():
    figure, bars = drawn([5] * 10 + [40] * 5, 20, 20)
    assert [kind for kind, _, _ in bars] == ["bar", "over"]
    assert bars[0][2] == 70 and bars[1][2] == 35 and bars[0][1] < bars[1][1]
    titles = [title.text for title in figure.iter("title")]
    assert titles[0].startswith("10 of ") and titles[1].startswith("5 of ")
    (caption,) = figure.iter("figcaption")
    assert caption.text.startswith("a <b> & c: 10.0 tokens on the mean, the longest 40, rows of 20")


def test_rows_longer_than_all_examples_leave_room_at_the_right():
    figure, bars = drawn([5, 5, 6], 100, 200)
    (row,) = [line for line in figure.iter("line") if line.get("class") == "row"]
    assert float(row.get("x1")) > 300 and max(x for _, x, _ in bars) < 20


def test_nothing_is_no_bars():
    figure, bars = drawn([], 10, 10)
    assert bars == [] and re.search("0.0 tokens", "".join(figure.itertext()))
