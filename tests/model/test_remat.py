import itertools
import re
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import jax
import numpy as np
import pytest

from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import declare, initialize
from spanloom.model.remat import KEPT, in_turn, taken_again
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

POLICIES = get_args(get_type_hints(Model)["remat"])
SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=6, num_encoder_layers=2, num_decoder_layers=1)


def batch(packed: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    inputs, targets = (random.integers(2, 50, (3, length), dtype=np.int32) for length in (12, 8))
    inputs[0, 9:], targets[1, 6:] = 0, 0
    fields = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
    }
    if packed:
        fields["encoder_segment_ids"] = ((np.arange(12) // 5 + 1) * (inputs > 0)).astype(np.int32)
        fields["decoder_segment_ids"] = ((np.arange(8) // 3 + 1) * (targets > 0)).astype(np.int32)
    return fields


def value_and_gradient(config: Model, packed: bool, key: Any) -> Any:
    params = jax.jit(lambda key: initialize(declare(config), key))(jax.random.key(0))
    step = jax.jit(jax.value_and_grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))
    return step(params, config, Loss(), batch(packed), key)


@pytest.mark.parametrize(
    "form", [{"dropout": 0.2}, {"dropout": 0.2, "scan_layers": False}, {"scan_layers": False, "activations": ("relu",)}]
)
def test_every_policy_gives_the_same_loss_and_gradient(form: dict[str, Any]) -> None:
    config = replace(SMALL, **form)
    key, packed = (jax.random.key(1), False) if config.dropout else (None, True)
    expected = value_and_gradient(config, packed, key)
    for policy in POLICIES[1:]:
        found = value_and_gradient(replace(config, remat=policy), packed, key)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), found, expected)


def kept(config: Model) -> list[Any]:
    """What the forward pass leaves to the backward pass, weights among it."""
    data = {name: np.tile(rows, (8, 1)) for name, rows in batch(False).items()}
    shapes = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, np.float32), declare(config))
    pull = jax.eval_shape(lambda p: jax.vjp(lambda q: loss_and_metrics(q, config, Loss(), data)[0], p)[1], shapes)
    return jax.tree.leaves(pull)


def test_each_policy_keeps_less_than_the_one_before_it() -> None:
    assert tuple(KEPT) == POLICIES[1:]
    for scan in (True, False):
        left = [kept(replace(SMALL, scan_layers=scan, remat=policy)) for policy in POLICIES]
        sizes = [sum(leaf.size for leaf in leaves) for leaves in left]
        assert all(less < 0.9 * more for more, less in itertools.pairwise(sizes)), sizes


@pytest.mark.parametrize("policy", POLICIES[1:])
def test_layers_that_are_computed_again_take_their_weights_again(policy: str) -> None:
    """On TPUs all of them would be kept in bfloat16 until then."""
    config = replace(SMALL, scan_layers=False, remat=policy)
    params = jax.eval_shape(lambda key: initialize(declare(config), key), jax.random.key(0))
    step = jax.jit(jax.grad(lambda params: loss_and_metrics(params, config, Loss(), batch(False))[0]))
    text = step.lower(params).as_text()
    for number in (r"%c_?\d*", r"%\d+#\d"):  # going forward; going backward, what XLA cannot see to be the same
        taken = re.findall(rf"\(%arg\d+, {number}\) : \(tensor<2x16x24xf32>, tensor<i32>\) -> tensor<16x24xf32>", text)
        assert len(taken) == 2 * config.num_encoder_layers, number
    hidden = re.findall(r"optimization_barrier.*", text)
    assert hidden and not any("2x16x24" in line for line in hidden), "a stack behind a barrier would be copied"


def test_parameters_taken_again_have_the_gradient_of_the_layers_own() -> None:
    stacked = {"kernel": np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)}
    own = {"kernel": stacked["kernel"][1]}
    value, pull = jax.vjp(lambda own, stacked: taken_again(own, stacked, np.int32(1)), own, stacked)
    np.testing.assert_array_equal(value["kernel"], own["kernel"])
    of_own, of_stacked = pull({"kernel": np.full((2, 2), 7.0, np.float32)})
    assert not np.any(of_stacked["kernel"]) and np.all(of_own["kernel"] == 7)


def test_the_backward_pass_waits_for_the_gradients_of_the_layer_above() -> None:
    """Behind a barrier with what goes on below; in the forward pass there is none."""
    x, weights = np.ones((2, 3), np.float32), {"kernel": np.full((3, 3), 2.0, np.float32)}
    (y, same), pull = jax.vjp(in_turn, x, weights)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(same["kernel"], weights["kernel"])
    assert "optimization_barrier" not in jax.jit(in_turn).lower(x, weights).as_text()
    text = jax.jit(pull).lower((x, weights)).as_text()
    assert re.search(r"optimization_barrier .*tensor<2x3xf32>, tensor<3x3xf32>", text)


@pytest.mark.parametrize("policy", POLICIES)
def test_unrolled_layers_settle_their_gradients_in_turn(policy: str) -> None:
    config = replace(SMALL, scan_layers=False, remat=policy, num_encoder_layers=4, num_decoder_layers=3)
    params = jax.eval_shape(lambda key: initialize(declare(config), key), jax.random.key(0))
    step = jax.jit(jax.grad(lambda params: loss_and_metrics(params, config, Loss(), batch(False))[0]))
    waiting = re.findall(r"optimization_barrier .*tensor<3x12x16xf32>.*tensor<16x24xf32>", step.lower(params).as_text())
    assert len(waiting) == 3, "one for every layer of the encoder but the first"
