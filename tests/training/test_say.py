from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_training import tiny_run

from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Checkpoints, Evaluation
from spanloom.settings.stopping import Stopping
from spanloom.settings.task import PairFiles
from spanloom.settings.vocabulary import Bytes
from spanloom.training.say import say_data, say_stopped
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short


class Heard:
    """A display that remembers."""

    def __init__(self):
        self.said, self.warned = [], []
        self.say, self.warn = self.said.append, self.warned.append


def data_of(task, examples, is_stream=False, lengths=(5,), tasks=1):
    """Pairs whose inputs and targets have these lengths in turn, for rows of 32 and 9."""
    offsets = np.cumsum([0, *(lengths[number % len(lengths)] for number in range(examples))])
    column = SimpleNamespace(shards=(SimpleNamespace(offsets=offsets),))
    store = SimpleNamespace(num_rows=examples, columns={"inputs": column, "targets": column})
    sizes = {"inputs_length": 32, "targets_length": 9}
    train = SimpleNamespace(num_examples=examples, examples_per_row=1.0, is_stream=is_stream, store=store, **sizes)
    tasks = (SimpleNamespace(task=task, train=train, reports={}, rate=1.0 / tasks),) * tasks
    lengths = {"encoder": 32, "decoder": 9}
    return SimpleNamespace(
        train=train, tasks=tasks, heldout={}, lengths=lengths, eras=(None,), vocabulary=build(Bytes())
    )


def heard(run, examples, is_stream=False):
    display = Heard()
    say_data(display, run, data_of(run.task, examples, is_stream))
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
    assert "task 'lines' is read 4.1 times" in warning
    assert heard(replace(TEXT, batch_size=10, steps=40), 100).warned == []


def test_many_epochs_are_written_out():
    display = heard(replace(TEXT, batch_size=10, steps=28_100), 100)
    assert "are 2,810 epochs" in display.said[-1]
    assert "is read 2,810.0 times" in display.warned[0]


def test_nobody_knows_how_often_a_stream_is_read():
    display = heard(replace(TEXT, batch_size=100, steps=41), 40, is_stream=True)
    assert (
        "a stream of training examples" in display.said[-1] and "41 steps of 100 are 4,100 of them" in display.said[-1]
    )
    assert display.warned == []


def test_fine_tuning_reads_pairs_many_times():
    assert heard(replace(PAIRS, batch_size=10, steps=1000), 100).warned == []


def test_that_much_of_pairs_is_cut_is_said():
    """One of nine is, where an end of sequence leaves no room, and one of eleven."""
    pairs = replace(PAIRS, batch_size=10)

    def warned(lengths, tasks=1):
        display = Heard()
        say_data(display, pairs, data_of(pairs.task, 990, lengths=lengths, tasks=tasks))
        return display.warned

    (warning,) = warned((9, *[8] * 8))
    assert (
        "targets of 11.1% of the examples of task 'lines' (110 of 990) are longer than 9 tokens and are cut" in warning
    )
    assert "raise task.objective.targets_length" in warning
    assert warned((9, *[8] * 10)) == []
    both = warned((40, 3))
    assert len(both) == 2 and both[0].startswith("inputs of 50.0%") and both[1].startswith("targets of 50.0%")
    many = warned((40, 3), tasks=5)
    assert len(many) == 4 and many[-1] == "7 more are cut like these: spanloom show lists all"


def test_an_embedding_made_for_another_vocabulary_is_said():
    wide = replace(TEXT, model=replace(TEXT.model, vocab_size=32128), batch_size=1)
    (warning,) = heard(wide, 100).warned
    assert "384 ids and the embedding 32,128 rows: 31,744 of them are never used (1.02 M parameters" in warning
    assert "--model.vocab-size 384 or a size made for bytes (--model byt5_small)" in warning
    assert heard(replace(wide, start="runs/a"), 100).warned == []
    assert heard(replace(TEXT, model=replace(TEXT.model, vocab_size=768), batch_size=1), 100).warned == []
    assert heard(replace(TEXT, model=replace(TEXT.model, vocab_size=769), batch_size=1), 100).warned != []


@pytest.mark.parametrize(
    ("every", "measured", "keep_best", "warns"), [(5, 5, 1, 0), (5, 10, 2, 0), (10, 5, 1, 1), (5, 5, 0, 1)]
)
def test_an_early_stop_that_may_find_its_best_weights_nowhere_is_said(every, measured, keep_best, warns):
    saving, measuring = Checkpoints(every=every, keep_best=keep_best), Evaluation(every=measured)
    run = replace(TEXT, steps=100, checkpoint=saving, eval=measuring, stopping=Stopping(patience=2))
    data = data_of(run.task, 10_000)
    data.heldout = {"lines": SimpleNamespace(num_examples=9)}
    display = Heard()
    say_data(display, run, data)
    found = [line for line in display.warned if "stops early" in line]
    assert len(found) == warns and all(f"--checkpoint.every {measured} " in line for line in found)


def test_what_is_said_of_a_stop_is_true():
    display = Heard()
    say_stopped(display, 7, Path("a/checkpoints/7"))
    say_stopped(display, None, Path("a/checkpoints/60"))
    say_stopped(display, None, None)
    after, nothing_new, begun = display.said
    assert "after step 7, which is saved" in after
    assert "nothing new since step 60" in nothing_new
    assert "before the first step" in begun
