import dataclasses
import inspect

import jax
import numpy as np
import pytest
from tiny_training import MODEL, same_arrays

from spanloom.model.params import declare, initialize
from spanloom.optim.build import build, learning_rate
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.run import Loss
from spanloom.training import step as step_module
from spanloom.training.state import fresh_state
from spanloom.training.step import make_train_step

OPTIMIZER, SCHEDULE = AdamW(learning_rate=1e-2), Constant()


def make_batch(seed=0, batch_size=4):
    draw = np.random.default_rng(seed)
    targets = draw.integers(3, 384, (batch_size, 6), dtype=np.int32)
    targets[0, 4:] = 0
    return {
        "encoder_input_tokens": draw.integers(3, 384, (batch_size, 10), dtype=np.int32),
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": (targets != 0).astype(np.int32),
    }


def setup(dropout=0.1, seed=0, loss=None):
    model = dataclasses.replace(MODEL, dropout=dropout)
    specs = declare(model)
    optimizer = build(OPTIMIZER, SCHEDULE, specs)
    step = make_train_step(model, loss or Loss(), optimizer, learning_rate(OPTIMIZER, SCHEDULE), seed)
    return step, lambda: fresh_state(initialize(specs, jax.random.key(0)), optimizer)


@pytest.fixture(scope="module")
def plain():
    return setup(dropout=0.0)


def test_a_step_learns_counts_and_measures(plain):
    step, fresh = plain
    state, batch, history = fresh(), make_batch(), []
    for _ in range(20):
        state, metrics = step(state, batch)
        history.append(jax.device_get(metrics))
    assert int(state.step) == 20
    assert history[-1]["loss"] < history[0]["loss"] - 1
    first = history[0]
    assert first["target_tokens"] == 22
    assert first["loss"] == pytest.approx(first["cross_entropy"] + first["z_loss"], rel=1e-6)
    assert first["learning_rate"] == pytest.approx(1e-2)
    assert first["grad_norm"] > 0
    assert {value.dtype for value in first.values()} == {np.dtype("float32")}
    assert {value.shape for value in first.values()} == {()}


def test_the_state_is_donated_and_nothing_compiles_twice(plain):
    step, fresh = plain
    state = fresh()
    old = state.params.token_embedder.embedding
    state, _ = step(state, make_batch())
    assert old.is_deleted()
    before = step._cache_size()
    for seed in range(3):
        state, _ = step(state, make_batch(seed))
    assert step._cache_size() == before == 1


def test_dropout_follows_seed_and_step_and_nothing_else():
    step, fresh = setup(dropout=0.3)
    (first, a), (again, b) = step(fresh(), make_batch()), step(fresh(), make_batch())
    assert same_arrays(first, again)
    assert float(a["loss"]) == float(b["loss"])
    _, later = step(dataclasses.replace(fresh(), step=first.step), make_batch())
    assert float(later["loss"]) != float(a["loss"])
    _, other_seed = setup(dropout=0.3, seed=1)[0](fresh(), make_batch())
    assert float(other_seed["loss"]) != float(a["loss"])


def test_the_update_fits_one_screen():
    assert len(inspect.getsource(step_module.make_train_step).splitlines()) <= 45
