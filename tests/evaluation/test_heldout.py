import dataclasses

import jax
import numpy as np
import pytest
from tiny_training import MODEL

from spanloom.evaluation.heldout import heldout_metrics, make_heldout_step
from spanloom.model.params import declare, initialize
from spanloom.model.t5 import forward
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build


def make_batch(seed, rows, real_rows):
    draw = np.random.default_rng(seed)
    targets = draw.integers(3, 259, (rows, 6), dtype=np.int32)
    targets[:, 0], targets[:, 5] = 259, 1
    batch = {
        "encoder_input_tokens": draw.integers(3, 259, (rows, 9), dtype=np.int32),
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": np.ones_like(targets),
    }
    return {name: array * (np.arange(rows) < real_rows)[:, None].astype(np.int32) for name, array in batch.items()}


@pytest.fixture(scope="module")
def subject():
    model = dataclasses.replace(MODEL, dropout=0.1)  # evaluation has none all the same
    return model, initialize(declare(model), jax.random.key(0)), make_heldout_step(model, build(Bytes()))


def test_the_sums_are_those_of_the_logits(subject):
    model, params, step = subject
    batches = [make_batch(0, 4, 4), make_batch(1, 4, 2)]
    found = heldout_metrics(step, params, batches)
    losses, hits = [], []
    for batch, rows in zip(batches, (4, 2), strict=True):
        logits = np.asarray(forward(params, model, batch), np.float64)[:rows]
        targets = batch["decoder_target_tokens"][:rows]
        log_z = np.log(np.exp(logits).sum(-1))
        losses.append(log_z - np.take_along_axis(logits, targets[..., None], -1)[..., 0])
        hits.append(logits.argmax(-1) == targets)
    losses, hits = np.concatenate(losses), np.concatenate(hits)
    assert found["heldout_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    assert found["heldout_text_loss"] == pytest.approx(losses[:, 1:5].mean(), rel=1e-5)
    assert found["heldout_accuracy"] == pytest.approx(hits.mean())
    assert (found["heldout_tokens"], found["heldout_text_tokens"]) == (36, 24)


def test_nothing_to_hold_out(subject):
    _, params, step = subject
    with pytest.raises(ValueError, match="no target tokens"):
        heldout_metrics(step, params, [make_batch(0, 4, 0)])
    with pytest.raises(ValueError, match="no target tokens"):
        heldout_metrics(step, params, [])
