import itertools
import re

from rich.cells import cell_len

from spanloom.report.terminal import render

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_in_a_pipe_there_is_one_line_for_each_side_and_no_escape(facts):
    text = "".join(render(facts, width=None, colour=False, ids=True, batch=True))
    assert "\x1b" not in text and "\u202e" not in text
    assert "\\x1b[31m \\u202e\u05e9\u05dc\u05d5\u05dd \u6c34" in text, "what came as an escape shows as text"
    lines = text.splitlines()
    assert all(line == line.rstrip() for line in lines)
    # examples of 7 tasks, and 8 rows of the batch
    assert sum(line.startswith("  inputs  ") for line in lines) == 21
    assert sum(line.startswith("  encoder  ") for line in lines) == 8
    for line, after in itertools.pairwise(lines):
        if line.startswith(("  inputs  ", "  targets  ", "  text  ")):
            assert re.fullmatch(r"    ids +\d+( \d+)*", after)
    assert "warning: task" not in text


def test_each_span_has_one_colour_on_both_sides_and_neighbours_differ(facts):
    spans = [one for one in facts.tasks if one.facts.name == "spans"]
    text = "".join(render(facts, width=None, colour=True))
    (number,) = [number for number, one in enumerate(facts.tasks) if one is spans[0]]
    block = text.split("spans, draw 1")[1].split("spans, draw 2")[0]
    colours: dict[str, set[str]] = {}
    for style, span in re.findall(r"\x1b\[([0-9;]+)m<(\d)>", block):
        colours.setdefault(span, set()).add(style)
    assert len(colours) > 2 and number == 0
    assert all(len(styles) == 1 for styles in colours.values())
    assert colours["0"] != colours["1"] != colours["2"]
    assert "</0>" not in ESCAPE.sub("", block), "colour takes the place of marks"


def test_colour_changes_nothing_but_marks(facts):
    plain = "".join(render(facts, width=None, colour=False))
    coloured = ESCAPE.sub("", "".join(render(facts, width=None, colour=True)))
    marks = re.compile(r"</?\d+>")
    assert marks.sub("", plain) == marks.sub("", coloured)


def test_on_a_terminal_lines_keep_its_width_wide_characters_counted(facts):
    for line in "".join(render(facts, width=60, colour=False)).splitlines():
        assert cell_len(line) <= 60 or re.match(r"(task|[a-z<>/0-9]+) +\S", line), "but for tables, which stay whole"


def test_packed_rows_show_the_borders_of_their_segments(packed):
    text = "".join(render(packed, width=None, colour=False, batch=True))
    (row,) = re.findall(r"^row 0 .*$", text, re.MULTILINE)
    bars = re.findall(r"\[([=#.]{32})\]", row)
    assert len(bars) == 2 and {"=", "#"} <= set(bars[0])
    segments = row.rpartition("; ")[2].split(" | ")
    assert len(segments) > 1 and all(re.fullmatch(r"\d+\+\d+ \S+", segment) for segment in segments)
    first = text.split("row 0 ")[1].split("row 1 ")[0]
    assert re.findall(r"^  (\d+) encoder", first, re.MULTILINE) == [str(n) for n in range(1, len(segments) + 1)]
    assert "\u2588" in "".join(render(packed, width=100, colour=True, batch=True))


def test_the_same_facts_give_the_same_text(facts):
    assert list(render(facts, width=80, colour=True)) == list(render(facts, width=80, colour=True))
