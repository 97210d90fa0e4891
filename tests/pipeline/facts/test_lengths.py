import numpy as np
import pytest
from pipeline_data import pair_task, sentences, text_task, tiny_run

from spanloom.pipeline.data import open_data
from spanloom.pipeline.facts.lengths import lengths_of, summary


def test_what_a_summary_says():
    found = summary([np.array([3, 5, 12]), np.array([], np.int64), np.array([20])], 10, is_sample=False)
    assert (found.examples, found.longest, found.truncated, found.share_truncated) == (4, 20, 2, 0.5)
    assert found.mean == (3 + 5 + 10 + 10) / 4 and found.padding(20) == pytest.approx(1 - 7 / 20)
    edges, counts = found.histogram.edges, found.histogram.counts
    assert len(edges) == len(counts) + 1 and sum(counts) == 4 and (edges[0], edges[-1]) == (0, 20)


def test_a_summary_of_nothing_and_of_very_long_lengths():
    found = summary([], 10, is_sample=False)
    assert (found.examples, found.mean, found.longest, found.share_truncated) == (0, 0, 0, 0)
    found = summary([np.array([1, 10**9])], 10, is_sample=True)
    assert found.truncated == 1 and sum(found.histogram.counts) == 2 and len(found.histogram.counts) <= 32


def test_pairs_are_counted_from_the_store_before_they_are_cut(write_pairs, tmp_path):
    pairs = [("x" * length, "y" * (1 + length % 7)) for length in range(1, 41)]
    task = pair_task(write_pairs(pairs), inputs_length=21, targets_length=8, too_long="trim")
    part = open_data(tiny_run(task), tmp_path / "a").train
    found = lengths_of(part, task, most=3)
    inputs, targets = found["inputs"], found["targets"]
    assert not inputs.is_sample and inputs.examples == targets.examples == 40
    assert inputs.longest == 41 and inputs.truncated == 20 and inputs.width == 21
    assert inputs.mean == np.minimum(np.arange(2, 42), 21).mean()
    assert targets.truncated == 0 and targets.longest == 8


def test_masked_text_is_measured_on_examples_as_they_are_drawn(write_texts, tmp_path):
    task = text_task(write_texts(sentences(120)), heldout_share=0.0)
    part = open_data(tiny_run(task).resolve(), tmp_path / "a").train
    whole = lengths_of(part, task, most=10_000)
    assert not whole["inputs"].is_sample and whole["inputs"].examples == part.num_examples
    batch = part.batch(0, part.num_examples)
    assert whole["targets"].mean == pytest.approx(batch["decoder_loss_weights"].sum(axis=1).mean())
    assert whole["inputs"].mean == pytest.approx((batch["encoder_input_tokens"] != 0).sum(axis=1).mean())
    assert whole["inputs"].truncated == 0 and whole["inputs"].width == 64
    some = lengths_of(part, task, most=5)
    assert some["inputs"].is_sample and some["inputs"].examples == 5
