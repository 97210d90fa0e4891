"""The tables: what they say of a mixture is counted by hand here."""

import re

import numpy as np
import pytest

from spanloom.pipeline.data import open_data
from spanloom.report import numbers


def rows_of(table):
    headings, rows = table
    return [dict(zip(headings, row, strict=True)) for row in rows]


def test_draws_are_those_that_the_planned_steps_take(facts, run_and_stores):
    run, folder = run_and_stores
    data = open_data(run, folder)
    drawn = np.bincount(data.train.plan.draws(0, run.steps * run.batch_size)[0], minlength=7)
    names = sorted(task.name for task in run.tasks)
    rows = {row["task"]: row for row in rows_of(numbers.amounts(facts))}
    assert list(rows) == [task.name for task in run.tasks], "in the order of the settings"
    for name, count in zip(names, drawn.tolist(), strict=True):
        assert rows[name]["examples drawn"] == str(count)
        assert rows[name]["rate drawn"] == f"{count / 160:.2%}"
        one = next(one for one in data.tasks if one.task.name == name)
        assert rows[name]["rate asked"] == f"{one.rate:.2%}"
        assert rows[name]["epochs"] == f"{count / one.train.num_examples:.2f}"
        assert rows[name]["examples"] == f"{one.train.num_examples:,}"
    assert rows["<b>pairs"]["held out"] == "none" and rows["spans"]["held out"].isdigit()
    assert "20 steps of 8 rows" in numbers.head(facts) and "draw 160 examples" in numbers.head(facts)


def test_tokens_of_an_epoch_are_those_of_all_its_examples(facts, run_and_stores):
    run, folder = run_and_stores
    data = open_data(run, folder)
    for one, shown in zip(data.tasks, rows_of(numbers.amounts(facts)), strict=True):
        batch = one.train.batch(0, one.train.num_examples)
        inputs = (batch["encoder_input_tokens"] != 0).sum()
        assert shown["tokens an epoch"].lstrip("~") == f"{inputs + batch['decoder_loss_weights'].sum():,}"


def test_padding_and_cutting_are_by_the_rows_of_the_run(facts):
    rows = {(row["task"], row["side"]): row for row in rows_of(numbers.lengths(facts))}
    pairs = rows["<b>pairs", "targets"]
    assert pairs["row"] == str(facts.widths["decoder"]) and pairs["longest"] == "20"
    cut = sum(number % 20 + 1 > 10 for number in range(1, 60) if number % 20)
    assert pairs["cut"] == str(cut)
    mean, width = float(pairs["mean"]), int(pairs["row"])
    assert float(pairs["padding"].rstrip("%")) == pytest.approx(100 * (1 - mean / width), abs=0.1)
    assert rows["full", "inputs"]["mean"] == "1.0"


def test_packed_runs_say_how_many_examples_share_a_row(packed):
    assert re.search(r"8 rows, padding is .*; [1-9]\.\d examples share a row", numbers.batch_line(packed))
    assert "about" in numbers.head(packed)
    assert all(row["examples drawn"].startswith("~") for row in rows_of(numbers.amounts(packed)))
    assert any("share a row" in note for note in numbers.notes(packed))


def test_an_example_that_is_cut_says_so(facts):
    lines = [
        numbers.example_line(one, number, example)
        for one in facts.tasks
        for number, example in enumerate(one.examples)
        if example.cut[1]
    ]
    assert lines and all(re.search(r"10 targets \(\d+ more are cut\)", line) for line in lines)
