from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_training import tiny_run

from spanloom.settings.task import PairFiles, Supervised
from spanloom.training.say import say_data

pytestmark = pytest.mark.short


class Heard:
    """A display that remembers."""

    def __init__(self):
        self.said, self.warned = [], []
        self.say, self.warn = self.said.append, self.warned.append


def data_of(examples):
    train = SimpleNamespace(num_examples=examples)
    return SimpleNamespace(train=train, heldout=None, reports={}, lengths={"encoder": 32, "decoder": 9})


def heard(run, examples):
    display = Heard()
    say_data(display, run, data_of(examples))
    return display


TEXT = tiny_run(Path("a.txt"), 10)
PAIRS = replace(TEXT, task=replace(TEXT.task, source=PairFiles(("a.tsv",)), objective=Supervised()))


@pytest.mark.parametrize("run", [TEXT, PAIRS])
def test_a_batch_larger_than_an_epoch_is_said(run):
    display = heard(replace(run, batch_size=100), 40)
    assert "10 steps of 100 are 25 epochs" in display.said[-1]
    (warning,) = display.warned
    assert warning.startswith("one batch takes 100 examples and there are 40: every batch holds each of them 2.5 times")
    assert "--batch-size (at most 40)" in warning
    assert heard(replace(run, batch_size=40, steps=1), 40).warned == []


def test_text_that_is_read_many_times_is_said():
    (warning,) = heard(replace(TEXT, batch_size=10, steps=41), 100).warned
    assert "every text is read 4.1 times" in warning
    assert heard(replace(TEXT, batch_size=10, steps=40), 100).warned == []


def test_many_epochs_are_written_out():
    display = heard(replace(TEXT, batch_size=10, steps=28_100), 100)
    assert "are 2,810 epochs" in display.said[-1]
    assert "is read 2,810 times" in display.warned[0]


def test_fine_tuning_reads_pairs_many_times():
    assert heard(replace(PAIRS, batch_size=10, steps=1000), 100).warned == []
