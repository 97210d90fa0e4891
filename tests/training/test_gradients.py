"""Gradients in microbatches are those of the whole batch, for every normaliser."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny_training import MODEL

from spanloom.model.params import declare, initialize
from spanloom.settings.run import Loss
from spanloom.training.gradients import make_gradients

SMALL = dataclasses.replace(MODEL, num_encoder_layers=1, num_decoder_layers=1)
PLAIN = dataclasses.replace(SMALL, dropout=0.0)


@pytest.fixture(scope="module")
def params():
    return initialize(declare(PLAIN), jax.random.key(0))


def make_batch(packed, rows=8):
    """Rows with very different numbers of targets, one without any."""
    draw = np.random.default_rng(0)
    targets = draw.integers(3, 384, (rows, 6), dtype=np.int32)
    weights = np.arange(6) < np.array([6, 1, 2, 0, 6, 3, 5, 1])[:, None]
    batch = {
        "encoder_input_tokens": draw.integers(3, 384, (rows, 10), dtype=np.int32),
        "decoder_target_tokens": targets * weights,
        "decoder_input_tokens": np.pad(targets * weights, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": weights.astype(np.int32),
    }
    if packed:
        batch["encoder_segment_ids"] = np.repeat([[1] * 4 + [2] * 6], rows, axis=0).astype(np.int32)
        batch["decoder_segment_ids"] = (np.repeat([[1, 1, 2, 2, 2, 2]], rows, axis=0) * weights).astype(np.int32)
    return batch


@pytest.mark.parametrize(
    ("normalizer", "microbatches", "packed"),
    [
        ("sum", 2, False),
        ("real_tokens", 8, True),
        ("all_tokens", 4, False),
        ("sequences", 2, True),
        ("sequences", 8, False),
        (7.0, 4, True),
    ],
)
def test_microbatches_change_nothing(params, normalizer, microbatches, packed):
    loss, batch = Loss(normalizer=normalizer, label_smoothing=0.1), make_batch(packed)
    (whole, sums), grads = jax.jit(make_gradients(PLAIN, loss))(params, batch, None)
    (parts, part_sums), part_grads = jax.jit(make_gradients(PLAIN, loss, microbatches))(params, batch, None)
    np.testing.assert_allclose(parts, whole, rtol=2e-6)
    for name in sums:
        np.testing.assert_allclose(part_sums[name], sums[name], rtol=2e-6, err_msg=name)
    for one, other in zip(jax.tree.leaves(part_grads), jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6 * float(np.abs(other).max() + 1))


def test_each_microbatch_draws_dropout_of_its_own(params):
    model = dataclasses.replace(SMALL, dropout=0.5)
    batch = {name: np.repeat(rows[:4], 2, axis=0) for name, rows in make_batch(False).items()}
    both, halves = (jax.jit(make_gradients(model, Loss(normalizer="sum"), parts)) for parts in (1, 2))
    key = jax.random.key(3)
    half = {name: rows[:4] for name, rows in batch.items()}
    alike = 2 * float(both(params, half, jax.random.fold_in(key, 0))[0][0])
    assert abs(float(halves(params, batch, key)[0][0]) - alike) > 1e-3


def test_memory_is_that_of_one_microbatch(params):
    batch = {name: np.tile(rows, (16, 1)) for name, rows in make_batch(False).items()}
    taken = []
    for parts in (1, 16):
        gradients = jax.jit(make_gradients(PLAIN, Loss(), parts)).lower(params, batch, None).compile()
        taken.append(gradients.memory_analysis().temp_size_in_bytes)
    assert taken[1] < taken[0] / 3
