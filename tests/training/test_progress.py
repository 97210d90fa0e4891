import io

import pytest

from spanloom.pipeline.build_progress import BuildProgress
from spanloom.training.progress import (
    Pace,
    PlainDisplay,
    TerminalDisplay,
    amount,
    describe_building,
    duration,
    make_display,
    times,
)

pytestmark = pytest.mark.short


SIDES = {"encoder": (9876.0, 11200.0), "decoder": (2469.0, 2800.0)}


def pace(step, **more):
    return Pace(step, 2.5, 12345.0, 0.42, 200.0, learning_rate=0.00123456, memory=1.5e9, **more)


def test_plain_lines_are_few_and_say_everything():
    stream = io.StringIO()
    display = PlainDisplay(stream, seconds_between=1000)
    display.warn("careful")
    display.begin(0, 100)
    for step in range(1, 101):
        display.advance(pace(step), log_line=True)
    display.close()
    assert stream.getvalue().splitlines() == [
        "warning: careful",
        "step 1/100  loss 2.5000  lr 0.00123  12,345 tokens/s  MFU 42%  1.5 GB  ETA 3 min 20 s",
        "step 100/100  loss 2.5000  lr 0.00123  12,345 tokens/s  MFU 42%  1.5 GB  ETA 3 min 20 s",
    ]


def test_a_held_out_loss_stands_beside_the_other_and_what_nobody_knows_is_left_out():
    told = Pace(7, 2.5, 10.0, 0.5, 1.0, heldout_loss=2.25)
    assert told.describe() == "loss 2.5000  held-out 2.2500  10 tokens/s  MFU 50%  ETA 1 s"


def test_both_sides_have_their_tokens_with_and_without_padding():
    told = pace(1, sides=SIDES, grad_norm=0.31251).describe()
    assert told == (
        "loss 2.5000  lr 0.00123  grad 0.313  9.88k+2.47k of 11.2k+2.8k tokens/s  MFU 42%  1.5 GB  ETA 3 min 20 s"
    )
    assert len(f"step 999/9999  {told}") <= 120
    full = {side: (tokens, tokens + 1) for side, (_, tokens) in SIDES.items()}
    assert "  11.2k+2.8k tokens/s  " in pace(1, sides=full).describe()


@pytest.mark.parametrize(
    ("step", "data", "checkpoint", "eval", "text"),
    [
        (0.9, 0.04, 0.04, 0.02, ""),
        (0.62, 0.3, 0.0, 0.08, "time: step 62%, data wait 30%, eval 8%"),
        (0.85, 0.005, 0.1, 0.045, "time: step 85%, checkpoint 10%, eval 4%"),
    ],
)
def test_where_the_time_goes_is_told_if_it_is_not_steps(step, data, checkpoint, eval, text):
    times = {"step_time": step, "data_wait": data, "checkpoint_time": checkpoint, "eval_time": eval}
    words = [part for part in pace(1, times=times).describe().split("  ") if part.startswith("time")]
    assert words == [text] * bool(text)


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (80, "loss 2.5000  lr 0.00123  12,345 tokens/s  MFU 42%  1.5 GB  ETA 3 min 20 s"),
        (70, "loss 2.5000  lr 0.00123  12,345 tokens/s  MFU 42%  ETA 3 min 20 s"),
        (60, "loss 2.5000  12,345 tokens/s  MFU 42%  ETA 3 min 20 s"),
        (1, "loss 2.5000  12,345 tokens/s  ETA 3 min 20 s"),
    ],
)
def test_a_narrow_terminal_has_what_matters_most(room, text):
    assert pace(1).describe(room) == text


@pytest.mark.parametrize(
    ("room", "text"),
    [
        (
            110,
            "loss 2.5000  lr 0.00123  grad 0.3  12,345 tokens/s  MFU 42%  time: step 50%, eval 50%  ETA 3 min 20 s",
        ),
        (80, "loss 2.5000  12,345 tokens/s  MFU 42%  time: step 50%, eval 50%  ETA 3 min 20 s"),
        (75, "loss 2.5000  12,345 tokens/s  time: step 50%, eval 50%  ETA 3 min 20 s"),
        (60, "loss 2.5000  12,345 tokens/s  ETA 3 min 20 s"),
    ],
)
def test_what_is_remarkable_goes_last(room, text):
    told = pace(1, sides=SIDES, grad_norm=0.3, times={"step_time": 0.5, "eval_time": 0.5})
    assert told.describe(room) == text


def test_a_bar_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    display = make_display(stream)
    assert isinstance(display, TerminalDisplay)
    display.building(BuildProgress("t", "train", 5, 100, 100, 0, False))
    display.building(BuildProgress("t", "train", 6, 120, 120, 1, True))
    display.begin(5, 10)
    display.say("[not markup] held-out loss 1.0")
    display.advance(pace(7), log_line=False)
    display.close()
    text = stream.getvalue()
    assert "[not markup] held-out loss 1.0" in text
    assert "7/10" in text
    assert "tokens/s" in text and "ETA 3 min 20 s" in text


def test_lines_where_there_is_no_terminal():
    assert isinstance(make_display(io.StringIO()), PlainDisplay)


def test_building_is_told_only_when_it_takes_long():
    stream = io.StringIO()
    PlainDisplay(stream, 1000).building(BuildProgress("t", "train", 5, 100, 100, 0, False))
    assert stream.getvalue() == ""
    PlainDisplay(stream, 0).building(BuildProgress("t", "train", 5, 12345, 999, 0, False))
    assert "building the train store of t: 5 documents, 12.3 kB, 999 tokens" in stream.getvalue()


def test_building_tells_pace_and_what_is_left():
    pace = {"bytes_per_second": 2.5e6, "tokens_per_second": 1e6}
    said = describe_building(BuildProgress("t", "train and heldout", 5, 100, 100, 0, False, **pace, seconds_left=200))
    assert said.endswith("100 tokens (2.5 MB/s, 1 M tokens/s), ETA 3 min 20 s")
    assert "ETA" not in describe_building(BuildProgress("t", "train", 5, 100, 100, 0, False, **pace))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (200, "3 min 20 s"),
        (18720, "5 h 12 min"),
        (273600, "3 d 4 h"),
        (float("nan"), "unknown"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (950, "950"), (12345, "12.3 k"), (1.23e6, "1.23 M"), (3e9, "3 G")]
)
def test_amounts(number, text):
    assert amount(number) == text


def test_a_reader_that_has_gone_stops_no_training():
    attempts = []

    class ClosedPipe(io.StringIO):
        def write(self, text):
            attempts.append(text)
            raise BrokenPipeError

    display = PlainDisplay(ClosedPipe())
    display.begin(0, 2)
    display.warn("careful")
    display.advance(pace(2), log_line=True)
    assert attempts[0] == "warning: careful"
    assert attempts[-1].startswith("step 2/2")


@pytest.mark.parametrize(
    ("number", "text"),
    [(2813.3, "2,810"), (12.0, "12"), (3.516, "3.52"), (1234567.0, "1,230,000"), (1.28e-5, "0.0000128"), (0.0, "0")],
)
def test_how_often_is_written_out(number, text):
    assert times(number) == text
