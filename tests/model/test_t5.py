from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import T5, declare, initialize
from spanloom.model.t5 import decode, encode, forward, head_logits, unstack_layers
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=6, num_encoder_layers=2, num_decoder_layers=2)


def made(config: Model) -> T5:
    tree: T5 = jax.jit(lambda key: initialize(declare(config), key))(jax.random.key(0))
    return tree


def batch(rows: int = 2, inputs: int = 7, targets: int = 5) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    wanted = random.integers(1, 50, (rows, targets), dtype=np.int32)
    return {
        "encoder_input_tokens": random.integers(1, 50, (rows, inputs), dtype=np.int32),
        "decoder_target_tokens": wanted,
        "decoder_input_tokens": np.pad(wanted[:, :-1], [(0, 0), (1, 0)]),
    }


@pytest.mark.parametrize("own_bias", [False, True])
def test_scanned_and_unrolled_agree_with_dropout(own_bias: bool) -> None:
    config = replace(SMALL, dropout=0.3, per_layer_position_bias=own_bias)
    params, data, key = made(config), batch(), jax.random.key(7)
    run = jax.jit(jax.value_and_grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))
    (scanned, _), gradient = run(params, config, Loss(), data, key)
    (unrolled, _), other = run(params, replace(config, scan_layers=False), Loss(), data, key)
    np.testing.assert_allclose(scanned, unrolled, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), gradient, other)
    (again, _), _ = run(params, config, Loss(), data, key)
    (another, _), _ = run(params, config, Loss(), data, jax.random.key(8))
    (without, _), _ = run(params, config, Loss(), data, None)
    assert again == scanned and len({float(scanned), float(another), float(without)}) == 3


def test_encode_then_decode_is_forward() -> None:
    params, data = made(SMALL), batch()
    encoded = encode(params, SMALL, data["encoder_input_tokens"])
    tokens = (data["encoder_input_tokens"], data["decoder_input_tokens"], data["decoder_target_tokens"])
    logits = head_logits(params, SMALL, decode(params, SMALL, encoded, *tokens))
    np.testing.assert_allclose(logits, forward(params, SMALL, data), atol=1e-5)


def test_padding_changes_nothing() -> None:
    params, data = made(SMALL), batch()
    longer = {name: np.pad(array, [(0, 0), (0, 4)]) for name, array in data.items()}
    longer["decoder_input_tokens"][:, 5] = data["decoder_target_tokens"][:, -1]
    np.testing.assert_allclose(forward(params, SMALL, longer)[:, :5], forward(params, SMALL, data), atol=1e-5)


def test_later_targets_are_not_seen() -> None:
    params, data = made(SMALL), batch()
    changed = {**data, "decoder_input_tokens": data["decoder_input_tokens"].copy()}
    changed["decoder_input_tokens"][:, 3] = 9
    before, after = (forward(params, SMALL, b) for b in (data, changed))
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert not np.allclose(before[:, 3:], after[:, 3:])


def test_packed_examples_get_the_logits_they_have_alone() -> None:
    params, apart = made(SMALL), batch()
    packed = {name: array.reshape(1, -1) for name, array in apart.items()}
    packed["encoder_segment_ids"] = np.repeat([[1, 2]], 7, axis=1)
    packed["decoder_segment_ids"] = np.repeat([[1, 2]], 5, axis=1)
    logits = forward(params, SMALL, packed).reshape(2, 5, 50)
    np.testing.assert_allclose(logits, forward(params, SMALL, apart), atol=1e-5)


def test_ids_beyond_the_table_are_noticed() -> None:
    params, data = made(SMALL), batch()
    data["encoder_input_tokens"][0, 0] = 50
    assert np.isnan(forward(params, SMALL, data)).any()


def test_layers_apart_have_a_concatenation_as_gradient() -> None:
    params = made(SMALL)
    text = str(jax.make_jaxpr(jax.grad(lambda w: unstack_layers(w, 2)[0].sum()))(jnp.ones((2, 3))))
    assert "concatenate" in text and "pad" not in text
    layers = unstack_layers(params.encoder.layers, 2)
    np.testing.assert_array_equal(layers[1].mlp.wo.kernel, params.encoder.layers.mlp.wo.kernel[1])
