import re
from html.parser import HTMLParser

import pytest

from spanloom.report.page import page
from spanloom.report.style import SPAN_COLOURS

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Text, tags and classes of a page; fails where tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


@pytest.mark.parametrize("batch", [False, True])
def test_a_page_stands_alone_and_its_tags_match(facts, batch):
    made = page(facts, ids=True, batch=batch)
    reader = read(made)
    assert made.startswith("<!doctype html>") and made.endswith("</html>\n")
    assert not {"script", "link", "img", "iframe", "b"} & reader.tags
    assert not [name for name, _ in reader.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in made and "@import" not in made and "http" not in made
    assert "color-scheme: light dark" in made and "prefers-color-scheme: dark" in made
    assert ("The first training batch" in "".join(reader.text)) is batch


def test_text_of_the_data_is_text(facts):
    reader = read(page(facts))
    text = "".join(reader.text)
    assert "<script>alert(1)</script> & \\x1b[31m \\u202e\u05e9\u05dc\u05d5\u05dd \u6c34" in text
    assert "<b>pairs, draw 1" in text and "Data of <all>" in text
    assert "\u202e" not in text and "\x1b" not in text


def test_a_span_has_one_colour_on_both_sides(facts):
    made = page(facts)
    block = made.split("spans, draw 1")[1].split("spans, draw 2")[0]
    found = re.findall(r'<bdi class="sentinel s(\d+)" dir="ltr">&lt;(\d+)&gt;</bdi>', block)
    assert len(found) > 4 and all(int(colour) == int(span) % SPAN_COLOURS for colour, span in found)
    assert all(f".s{number} {{" in made for number in range(SPAN_COLOURS))
    side = block.split("<dt>text</dt>")[1].split("<dt>inputs</dt>")[0]
    assert re.search(r'<bdi class="begin s0" dir="ltr">0</bdi><span class="span s0">', side)


def test_there_is_a_histogram_for_each_side_of_each_task(facts):
    made = page(facts)
    assert made.count("<svg") == made.count("</svg>") == 14
    over = made.split("&lt;b&gt;pairs, targets")[1].split("</svg>")[0]
    assert 'class="over"' in over and 'class="bar"' in over


def test_packed_rows_have_a_part_for_each_segment(packed):
    made = page(packed, batch=True)
    row = made.split("<p>row 0 ")[1].split("</p>")[0]
    meters = re.findall(r'<span class="meter">(.*?)</span>', row)
    assert len(meters) == 2 and all(meter.count("<i ") > 1 for meter in meters)
    widths = [float(width) for width in re.findall(r"width:([0-9.]+)%", meters[0])]
    assert 50 < sum(widths) <= 100.1
    read(made)


def test_a_page_without_examples(facts):
    from dataclasses import replace

    bare = replace(facts, tasks=tuple(replace(one, examples=()) for one in facts.tasks), warnings=("a < b",))
    reader = read(page(bare))
    assert "Examples" not in "".join(reader.text) and "a < b" in reader.text
