from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model import layers
from spanloom.model.attention import attention, make_mask, position_bias
from spanloom.model.fused_attention import fused_attention, takes_fused
from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import declare, initialize
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)


def operands(length: int, keys: int) -> tuple[jax.Array, ...]:
    shapes = ((3, length, 2, 8), (3, keys, 2, 8), (3, keys, 2, 8), (2, 32))
    return tuple(jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(shapes))


@pytest.mark.parametrize(("length", "keys", "causal"), [(13, 13, False), (16, 16, True), (5, 18, False)])
@pytest.mark.parametrize("packed", [False, True])
def test_value_and_gradients_are_those_of_the_reference(length: int, keys: int, causal: bool, packed: bool) -> None:
    """The bias table's gradient, too; with padding, a row without any text, and packed rows."""
    args = operands(length, keys)
    real = np.arange(keys) < np.array([[keys], [keys - 4], [0]])
    segments = (np.arange(length) // 4 + 1)[None] * np.ones((3, 1), int), (np.arange(keys) // 4 + 1) * real
    mask = make_mask(jnp.asarray(real), *(segments if packed else (None, None)), causal=causal)
    keep = 2.0 * jax.random.bernoulli(jax.random.key(7), 0.5, (3, keys, 2, 1))
    weight = jax.random.normal(jax.random.key(8), (3, length, 2, 8))
    seen = jnp.any(mask.added_Bx1xTxS == 0, axis=-1)[:, 0, :, None, None]  # what a query without keys gives, none uses

    def ours(q: jax.Array, k: jax.Array, v: jax.Array, table: jax.Array) -> Any:
        bias = position_bias(table, length, keys, bidirectional=not causal, max_distance=20)
        return jnp.where(seen, fused_attention(q, k, v * keep, bias, mask, implementation="xla"), 0)

    def reference(q: jax.Array, k: jax.Array, v: jax.Array, table: jax.Array) -> Any:
        bias = position_bias(table, length, keys, bidirectional=not causal, max_distance=20)
        return jnp.where(seen, attention(q, k, v * keep, bias, mask.added_Bx1xTxS), 0)

    def run(f: Any) -> Any:
        whole = jax.value_and_grad(lambda *a: (jnp.sum(f(*a) * weight), f(*a)), argnums=(0, 1, 2, 3), has_aux=True)
        (_, mixed), gradients = jax.jit(whole)(*args)
        return mixed, *gradients

    for mine, other in zip(run(ours), run(reference), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_a_model_with_it_has_the_reference_s_loss_and_gradient(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    random = np.random.default_rng(0)
    inputs, targets = (random.integers(2, 50, (3, length), dtype=np.int32) for length in (13, 7))
    inputs[0, 11:], targets[1, 5:] = 0, 0  # every part of a packed row of targets has inputs
    data = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
    }
    if packed:
        data["encoder_segment_ids"] = ((np.arange(13) // 5 + 1) * (inputs > 0)).astype(np.int32)
        data["decoder_segment_ids"] = ((np.arange(7) // 3 + 1) * (targets > 0)).astype(np.int32)
    params = jax.jit(lambda key: initialize(declare(SMALL), key))(jax.random.key(0))
    run = lambda: jax.jit(jax.value_and_grad(lambda p: loss_and_metrics(p, SMALL, Loss(), data)[0]))(params)  # noqa: E731
    expected = run()
    monkeypatch.setattr(layers, "takes_fused", lambda config: True)
    monkeypatch.setattr(layers, "fused_attention", lambda *args: fused_attention(*args, implementation="xla"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), run(), expected)


def test_what_is_taken_where(monkeypatch: pytest.MonkeyPatch) -> None:
    half = replace(SMALL, dtype="bfloat16")
    assert not takes_fused(half)
    assert takes_fused(replace(half, attention="cudnn"))
    for wrong in (SMALL, replace(half, d_kv=12), replace(half, d_kv=256)):
        with pytest.raises(ValueError, match=r"model.attention is cudnn.*take auto or einsum"):
            takes_fused(replace(wrong, attention="cudnn"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert takes_fused(half)
    assert not any(takes_fused(other) for other in (SMALL, replace(half, attention="einsum"), replace(half, d_kv=12)))
