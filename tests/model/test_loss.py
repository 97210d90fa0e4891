import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model import loss as module
from spanloom.model.loss import (
    expected_initial_loss,
    head_loss,
    loss_and_metrics,
    loss_from_hidden,
    normalize_weights,
)
from spanloom.model.params import declare, initialize
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=6, num_encoder_layers=1, num_decoder_layers=1)


def made(config: Model, seed: int = 0) -> Any:
    return jax.jit(lambda key: initialize(declare(config), key))(jax.random.key(seed))


def batch(config: Model = SMALL, rows: int = 3, inputs: int = 7, targets: int = 11) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    wanted = random.integers(2, config.vocab_size, (rows, targets), dtype=np.int32)
    wanted[0, 6:] = 0
    return {
        "encoder_input_tokens": random.integers(2, config.vocab_size, (rows, inputs), dtype=np.int32),
        "decoder_target_tokens": wanted,
        "decoder_input_tokens": np.pad(wanted[:, :-1], [(0, 0), (1, 0)]),
    }


@pytest.mark.short
def test_chunks_fit_and_leave_nothing_over_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)
    assert [module._chunk_length(114, bytes_of_one) for bytes_of_one in (1, 8.7, 8.8, 30, 2000)] == [
        114,
        114,
        57,
        19,
        1,
    ]
    assert module._chunk_length(113, 30) == 29  # a prime: the last chunk is padded


def test_a_batch_in_parts_has_chunks_of_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a device has at a time is what must fit."""
    params, data = made(SMALL), batch()
    monkeypatch.setattr(module, "CHUNK_BYTES", 3 * 11 * 50 * 4 // 2)

    class Halves(Placement):
        batch_shards = 2

    def program(place: Placement) -> str:
        return str(jax.make_jaxpr(lambda p: loss_and_metrics(p, SMALL, Loss(), data, None, place))(params))

    assert "f32[3,11,50]" not in program(ANYWHERE) and "f32[3,11,50]" in program(Halves())


@pytest.mark.short
def test_a_sum_finds_the_logits_that_a_gather_finds() -> None:
    logits, targets = jax.random.normal(jax.random.key(0), (2, 3, 9)), jnp.array([[0, 8, 4], [1, 1, 7]])
    np.testing.assert_array_equal(module._picked(logits, targets), module._gathered(logits, targets))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, tied: bool, smoothing: float) -> None:
    config = replace(SMALL, tie_embeddings=tied)
    params, data, settings = made(config), batch(config), Loss(z_loss=1e-2, label_smoothing=smoothing)
    hidden, weights = jax.random.normal(jax.random.key(1), (3, 11, 16)), jnp.ones((3, 11))

    def run() -> Any:
        whole = jax.value_and_grad(loss_from_hidden, argnums=(0, 3), has_aux=True)
        tokens = head_loss(params, config, settings, hidden, data["decoder_target_tokens"], weights)[1]
        return (*whole(params, config, settings, hidden, data), tokens)

    (value, metrics), gradient, tokens = run()
    for chunk_bytes in (1, 3 * 4 * 50 * 4):  # one position at a time; four, of which 11 is no multiple
        monkeypatch.setattr(module, "CHUNK_BYTES", chunk_bytes)
        (other, sums), slope, apart = run()
        np.testing.assert_allclose(other, value, rtol=1e-6)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), sums, metrics)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-7), slope, gradient)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), apart, tokens)


def test_logits_are_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 3 * 2 * 50 * 4)
    traced = jax.make_jaxpr(jax.grad(lambda p: loss_and_metrics(p, SMALL, Loss(), batch())[0]))(made(SMALL))
    assert "f32[3,2,50]" in str(traced) and "f32[3,11,50]" not in str(traced)


@pytest.mark.exact
def test_the_gradient_scales_with_what_comes_after() -> None:
    """By a power of two, which costs no digit."""
    params, data = made(SMALL), batch()
    once = jax.grad(lambda p: loss_and_metrics(p, SMALL, Loss(), data)[0])(params)
    fourfold = jax.grad(lambda p: 4 * loss_and_metrics(p, SMALL, Loss(), data)[0])(params)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(4 * a, b), once, fourfold)


def test_metrics_add_up_over_batches() -> None:
    params, data = made(SMALL), batch()
    _, whole = loss_and_metrics(params, SMALL, Loss(), data)
    parts = [loss_and_metrics(params, SMALL, Loss(), {k: v[i : i + 1] for k, v in data.items()})[1] for i in range(3)]
    for name, value in whole.items():
        np.testing.assert_allclose(sum(part[name] for part in parts), value, rtol=1e-5)
        assert value.dtype == jnp.float32 and value.shape == ()
    assert whole["num_sequences"] == 3 and whole["weight_sum"] == 6 + 11 + 11


def test_a_batch_without_weight_costs_nothing() -> None:
    params, data = made(SMALL), {**batch(), "decoder_loss_weights": np.zeros((3, 11), np.int32)}
    for normalizer in ("sum", "real_tokens", "all_tokens", "sequences", 7.0):
        whole = jax.value_and_grad(loss_from_hidden, argnums=(0, 3), has_aux=True)
        (value, _), gradient = whole(params, SMALL, Loss(normalizer=normalizer), jnp.ones((3, 11, 16)), data)
        assert value == 0
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradient))


def test_a_perfect_model_has_no_loss_under_label_smoothing() -> None:
    config = replace(SMALL, vocab_size=8)
    on, off = 0.9, 0.1 / 7
    target = np.array([[3, 5]], np.int32)
    logits = np.full((1, 2, 8), math.log(off), np.float32)
    logits[0, [0, 1], target[0]] = math.log(on)
    params = made(config)
    # A hidden state and a head whose product these logits are.
    head = np.zeros((16, 8), np.float32)
    head[:2] = logits[0]
    hidden = np.eye(2, 16, dtype=np.float32)[None]
    decoder = replace(params.decoder, logits_dense=replace(params.decoder.logits_dense, kernel=jnp.asarray(head)))
    params = replace(params, decoder=decoder)
    tokens = head_loss(params, config, Loss(0.0, 0.1), hidden, target, jnp.ones((1, 2)))[1]
    np.testing.assert_allclose(tokens.cross_entropy, 0, atol=1e-6)


@pytest.mark.short
def test_normalizers_that_mean_nothing_are_refused() -> None:
    weights = jnp.ones((2, 3))
    with pytest.raises(ValueError, match="real_tokens"):
        normalize_weights("tokens", weights, weights)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0"):
        normalize_weights(0.0, weights, weights)
    with pytest.raises(ValueError, match="label_smoothing"):
        loss_and_metrics(made(SMALL), SMALL, Loss(label_smoothing=1.5), batch())


@pytest.mark.parametrize(
    "shape",
    [
        # d_model, layers, d_ff, heads, d_kv, vocabulary: narrow, deep, and wide with a small vocabulary
        (64, 2, 128, 4, 16, 384),
        (128, 4, 256, 4, 32, 384),
        (256, 2, 512, 4, 32, 4096),
        (512, 1, 512, 4, 32, 384),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.4])
def test_the_first_loss_is_in_the_band(shape: tuple[int, ...], tied: bool, smoothing: float) -> None:
    width, layers, d_ff, heads, d_kv, vocabulary = shape
    config = Model(
        vocab_size=vocabulary,
        d_model=width,
        d_ff=d_ff,
        num_heads=heads,
        d_kv=d_kv,
        num_encoder_layers=layers,
        num_decoder_layers=layers,
        tie_embeddings=tied,
        activations=("relu",) if tied else ("gelu", "linear"),
    )
    loss = Loss(label_smoothing=smoothing)
    low, high = expected_initial_loss(config, loss)
    assert high - low < 2 or tied
    for seed in range(2):
        _, sums = loss_and_metrics(made(config, seed), config, loss, batch(config, rows=8, targets=24))
        assert low < sums["cross_entropy_sum"] / sums["weight_sum"] < high
