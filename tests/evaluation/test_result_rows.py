import csv
import io
import json
import math

import pytest

from spanloom.evaluation.result_rows import MACRO, TASK, Row, as_csv, as_jsonl, as_markdown, shown, with_averages

pytestmark = pytest.mark.short


def row(data_set, template, checkpoint="m-1", **numbers):
    return Row(checkpoint, TASK, data_set, template, f"{data_set}_{template}", 10, numbers)


ROWS = [
    row("a", "x", heldout_loss=1.0, rank_accuracy=10.0, rank_accuracy_low=0.0, rank_accuracy_high=20.0),
    row("b", "x", heldout_loss=5.0, f1=50.0),
    row("a", "y|z", heldout_loss=2.0, rank_accuracy=30.0, rank_accuracy_low=5.0, rank_accuracy_high=math.nan),
    row("a", "z", heldout_loss=6.0),
]


def test_data_sets_and_the_average_of_all():
    """Over templates that have the number; data sets weigh alike, however many templates they have."""
    rows = with_averages(ROWS)
    assert [(one.kind, one.data_set) for one in rows] == [
        *[(TASK, "a")] * 3,
        *[(kind, "a") for kind in ("mean", "median", "lower quartile", "upper quartile")],
        (TASK, "b"),
        *[(kind, "b") for kind in ("mean", "median", "lower quartile", "upper quartile")],
        (MACRO, ""),
    ]
    assert [one.numbers["heldout_loss"] for one in rows[3:7]] == [3.0, 2.0, 1.5, 4.0]
    assert [one.numbers["rank_accuracy"] for one in rows[3:7]] == [20.0, 20.0, 15.0, 25.0]
    assert rows[-1].numbers == {"heldout_loss": 4.0, "rank_accuracy": 20.0, "f1": 50.0}
    assert rows[3].examples == 30 and rows[-1].examples == 40
    assert [one.kind for one in shown(rows)] == [TASK] * 3 + [one.kind for one in rows[3:7]] + [TASK, MACRO]
    assert [one.kind for one in shown(with_averages(ROWS[1:2]))] == [TASK]


def test_checkpoints_are_apart():
    rows = with_averages([*ROWS, row("a", "x", "m-2", heldout_loss=9.0)])
    (second,) = (one for one in rows if one.kind == MACRO and one.checkpoint == "m-2")
    assert second.numbers == {"heldout_loss": 9.0}
    assert [one.kind for one in shown(rows) if one.checkpoint == "m-2"] == [TASK]


def test_files_say_the_same():
    rows = with_averages(ROWS)
    lines = [json.loads(line) for line in as_jsonl(rows).splitlines()]
    table = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert [line["heldout_loss"] for line in lines] == [float(line["heldout_loss"]) for line in table]
    assert [line["rank_accuracy_high"] for line in lines[:2]] == [20.0, None] and table[1]["rank_accuracy_high"] == ""
    assert "f1" not in lines[0] and table[0]["f1"] == ""
    text = as_markdown(rows)
    assert "| a | x | 10 | 1.0000 | 10.00 [0.00, 20.00] |  |" in text and r"| a | y\|z |" in text
    assert "|  | (macro average) | 40 | 4.0000 | 20.00 | 50.00 |" in text and "|---|---|---:|---:|---:|---:|" in text
    assert "low" not in text.splitlines()[0]
