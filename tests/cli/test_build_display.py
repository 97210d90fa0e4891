import io
import math

import pytest

from spanloom.cli.build_display import (
    PlainBuildDisplay,
    TerminalBuildDisplay,
    lines_of,
    make_build_display,
)
from spanloom.pipeline.build_progress import AllProgress, BuildProgress

pytestmark = pytest.mark.short


class Terminal(io.StringIO):
    def isatty(self):
        return True


def told(tasks=300, seconds_left=7300.0) -> AllProgress:
    current = BuildProgress("en", "train and heldout", 12345, 98_700_000, 31_000_000, 3, False, 17e6, 4.2e6, 200.0, 50)
    return AllProgress(current, 16, tasks, 1_000_000, 5_000_000_000, 10**9, 15e6, 4e6, seconds_left)


def test_one_line_on_the_task_and_one_on_all():
    assert lines_of(told()) == [
        "data: en: ETA 3 min 20 s, 12,345 documents, 98.7 MB, 31 M tokens, 17 MB/s, 4.2 M tokens/s",
        "16 of 300 tasks done: ETA 2 h 1 min, 1,000,000 documents, 5 GB, 1 G tokens, 15 MB/s, 4 M tokens/s",
    ]
    assert len(lines_of(told(tasks=1))) == 1
    assert "ETA" not in lines_of(told(seconds_left=math.nan))[1]


def test_plain_lines_are_few(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("spanloom.cli.build_display.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    display = make_build_display(stream)
    assert isinstance(display, PlainBuildDisplay)
    display.warn("careful")
    for second in range(36_000):  # ten hours
        now[0] = float(second)
        display.building(told())
    display.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "warning: careful" and lines[1:3] == lines_of(told())
    assert 100 < len(lines) < 500
    assert len([line for line in lines if line.startswith("16 of 300")]) == len(lines) // 2


def test_nothing_is_said_of_a_short_build():
    stream = io.StringIO()
    PlainBuildDisplay(stream).building(told())
    assert stream.getvalue() == ""


def test_a_terminal_has_two_lines_at_a_time(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    display = make_build_display(stream)
    assert isinstance(display, TerminalBuildDisplay)
    display.close()
    assert stream.getvalue() == ""  # nothing was ever shown
    display = make_build_display(stream)
    for _ in range(300):
        display.building(told())
    display.warn("[not markup] careful")
    display.say("a line that stays")
    display.close()
    text = stream.getvalue()
    assert "data: en: ETA 3 min 20 s" in text and "16 of 300 tasks done" in text
    assert "warning: [not markup] careful" in text and "a line that stays" in text
    assert text.count("data: en") < 30  # refreshed by the clock, not by each of 300 tasks
    assert "4.2 M tokens/s" not in text  # cut at the edge: a line that wraps could not be changed in place
