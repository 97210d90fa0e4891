"""Runs whose weights are averaged, rounded or moved by other optimizers are resumed to the last bit."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_training import losses, same_arrays, tiny_run, train, write_text

from spanloom.evaluation.heldout import heldout_by_task, make_heldout_step
from spanloom.model.params import declare, initialize
from spanloom.optim.averaged import averaged_params
from spanloom.optim.build import build
from spanloom.optim.rounding import as_kept
from spanloom.pipeline.data import open_data
from spanloom.settings.optimizer import AdamW, Lion, Muon, ScheduleFree
from spanloom.settings.weights import Weights
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore

CASES = {
    "muon, stochastic, averaged": (Muon(learning_rate=1e-2), Weights("bfloat16", "stochastic", 0.9)),
    "lion, kahan": (Lion(learning_rate=1e-3), Weights("bfloat16", "kahan")),
    "schedule-free": (ScheduleFree(learning_rate=1e-2), Weights()),
    "adamw, averaged": (AdamW(learning_rate=1e-2), Weights(ema_decay=0.9)),
}


def restored(run, directory: Path):
    run, specs = run.resolve(), declare(run.model)
    optimizer = build(run.optimizer, run.schedule, specs, run.weights, run.seed)
    shapes = jax.eval_shape(lambda key: optimizer.init(as_kept(initialize(specs, key), run.weights)), jax.random.key(0))
    checkpoint = latest(directory)
    assert checkpoint is not None
    return restore(checkpoint, opt_state_like=shapes)


@pytest.mark.parametrize("name", CASES)
def test_resumed_to_the_last_bit_and_evaluated_averaged(tmp_path, name):
    optimizer, weights = CASES[name]
    text = write_text(tmp_path / "text.txt")
    run = tiny_run(text, 20, optimizer=optimizer, weights=weights)
    train(run, tmp_path / "whole")
    train(dataclasses.replace(run, steps=10), tmp_path / "parts")
    train(run, tmp_path / "parts")
    whole, parts = losses(tmp_path / "whole"), losses(tmp_path / "parts")
    assert whole.items() <= parts.items() and ("train", 20) in whole
    ends = [restored(run, tmp_path / place) for place in ("whole", "parts")]
    assert same_arrays((ends[0].params, ends[0].opt_state), (ends[1].params, ends[1].opt_state))

    kept = ends[0].params
    averaged = jax.jit(averaged_params)(ends[0].opt_state, kept)
    assert (averaged is not None) == ("averaged" in name or name == "schedule-free")
    assert all(leaf.dtype == weights.dtype for leaf in jax.tree.leaves(kept))
    run = run.resolve()
    data = open_data(run, tmp_path / "whole", warn=lambda _: None)
    step = make_heldout_step(run.model, data.vocabulary)
    found = {
        place: heldout_by_task(step, params, data.heldout, run.eval, iter)["lines"]["heldout_loss"]
        for place, params in (("kept", kept), ("averaged", averaged))
        if params is not None
    }
    assert whole["eval", 20] == found["kept" if averaged is None else "averaged"]
    assert averaged is None or np.abs(found["kept"] - found["averaged"]) > 1e-4
