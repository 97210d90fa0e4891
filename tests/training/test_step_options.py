"""What a step does on request: leave out updates that are no number, measure every parameter, keep bfloat16 weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import MODEL, same_arrays

from spanloom.model.params import declare, flatten, initialize, unstack
from spanloom.optim.build import build, learning_rate
from spanloom.optim.parameter_rms import by_layer
from spanloom.optim.rounding import as_kept, as_used
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.run import Loss
from spanloom.settings.weights import Weights
from spanloom.training.gradients import make_gradients
from spanloom.training.state import fresh_state
from spanloom.training.step import make_train_step

PLAIN = dataclasses.replace(MODEL, dropout=0.0)
SPECS = declare(PLAIN)
OPTIMIZER = AdamW(learning_rate=1e-2)
PLAINLY = Weights()
RATE = learning_rate(OPTIMIZER, Constant())


def batch(seed=0):
    draw = np.random.default_rng(seed)
    inputs, targets = (draw.integers(3, 259, (4, length), dtype=np.int32) for length in (10, 6))
    return {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
        "decoder_loss_weights": np.ones_like(targets),
    }


def started(weights=PLAINLY):
    optimizer = build(OPTIMIZER, Constant(), SPECS, weights, seed=1)
    return optimizer, fresh_state(as_kept(initialize(SPECS, jax.random.key(0)), weights), optimizer)


def copied(tree):
    return jax.tree.map(jnp.copy, tree)


@pytest.mark.parametrize("weights", [Weights(), Weights("bfloat16", "kahan", 0.9)], ids=lambda w: w.dtype)
def test_a_step_that_is_no_number_changes_nothing_but_the_counter(weights):
    optimizer, state = started(weights)
    step = make_train_step(PLAIN, Loss(normalizer=1.0), optimizer, RATE, skip_nonfinite=True)
    state, metrics = step(state, batch())
    assert metrics["skipped"] == 0.0
    before = copied(state)
    spoilt = {**batch(1), "decoder_loss_weights": np.full((4, 6), np.inf, np.float32)}
    state, metrics = step(state, spoilt)
    assert metrics["skipped"] == 1.0 and not np.isfinite(metrics["grad_norm"])
    assert int(state.step) == 2
    assert same_arrays((state.params, state.opt_state), (before.params, before.opt_state))
    # And goes on as if that step had not been.
    state, _ = step(state, batch(2))
    other, _ = step(before, batch(2))
    assert same_arrays((state.params, state.opt_state), (other.params, other.opt_state))


def test_without_the_option_it_spoils_the_weights():
    optimizer, state = started()
    step = make_train_step(PLAIN, Loss(normalizer=1.0), optimizer, RATE)
    state, metrics = step(state, {**batch(), "decoder_loss_weights": np.full((4, 6), np.inf, np.float32)})
    assert "skipped" not in metrics and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


@pytest.mark.exact
def test_skipping_costs_no_digit():
    """Where every step is a number, the losses are those without the option."""
    ends = []
    for skip in (False, True):
        optimizer, state = started()
        step = make_train_step(PLAIN, Loss(), optimizer, RATE, skip_nonfinite=skip)
        for seed in range(3):
            state, metrics = step(state, batch(seed))
        ends.append((float(metrics["loss"]), state.params))
    assert ends[0][0] == ends[1][0] and same_arrays(ends[0][1], ends[1][1])


def test_parameters_gradients_and_steps_are_measured_on_request():
    optimizer, state = started()
    step = make_train_step(PLAIN, Loss(), optimizer, RATE, parameters=True)
    before = flatten(copied(state.params))
    state, metrics = step(state, batch())
    lines, name = by_layer(jax.device_get(metrics["parameters"])), "encoder/layers/mlp/wo/kernel"
    for layer in range(2):
        line = lines[f"encoder/layers_{layer}/mlp/wo/kernel"]
        moved = np.asarray(flatten(state.params)[name][layer]) - np.asarray(before[name][layer])
        assert line["weight"] == pytest.approx(np.sqrt(np.mean(np.square(before[name][layer]))), rel=1e-5)
        assert line["update"] == pytest.approx(np.sqrt(np.mean(np.square(moved))), rel=1e-3)
    sizes = {name: leaf.size for name, leaf in unstack(before).items()}
    squares = sum(line["gradient"] ** 2 * sizes[name] for name, line in lines.items())
    assert np.sqrt(squares) == pytest.approx(float(metrics["grad_norm"]), rel=1e-5)


@pytest.mark.parametrize("rounding", ["stochastic", "kahan"])
def test_bfloat16_weights_have_the_loss_of_their_float32_copies_and_its_gradients(rounding):
    """Of kernels rounded to bfloat16, so that their norm is not the same to the last digit."""
    weights = Weights("bfloat16", rounding)
    optimizer, low = started(weights)
    plain = build(OPTIMIZER, Constant(), SPECS)
    exact = fresh_state(jax.tree.map(lambda leaf: leaf.astype(jnp.float32), low.params), plain)
    _, from_low = make_train_step(PLAIN, Loss(), optimizer, RATE)(low, batch())
    _, from_exact = make_train_step(PLAIN, Loss(), plain, RATE)(exact, batch())
    assert float(from_low["loss"]) == float(from_exact["loss"])
    assert float(from_low["grad_norm"]) == pytest.approx(float(from_exact["grad_norm"]), rel=1e-3)


@pytest.mark.parametrize("microbatches", [1, 2])
def test_gradients_of_bfloat16_weights_are_summed_in_float32(microbatches):
    gradients = make_gradients(PLAIN, Loss(), microbatches)
    low = as_kept(initialize(SPECS, jax.random.key(0)), Weights("bfloat16"))
    found = jax.eval_shape(gradients, as_used(low, SPECS), batch(), None)[1]
    types = {name: leaf.dtype for name, leaf in flatten(found).items()}
    kernels = {name for name in types if "/layers/" in name and name.endswith("/kernel")}
    assert len(kernels) == 18
    assert {types[name] for name in kernels} == {jnp.dtype("bfloat16" if microbatches == 1 else "float32")}
    assert {types[name] for name in types.keys() - kernels} == {jnp.dtype("float32")}
