"""What is computed on TPUs, and on GPUs, is what is computed on CPUs: their programs, run here."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from spanloom.model import attention
from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import declare, initialize
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

SMALL = Model(vocab_size=50, d_model=16, d_ff=24, num_heads=2, d_kv=6, num_encoder_layers=2, num_decoder_layers=1)


def value_and_gradient() -> Any:
    random = np.random.default_rng(0)
    inputs, targets = (random.integers(2, 50, (3, length), dtype=np.int32) for length in (12, 8))
    inputs[0, 9:], targets[1, 6:] = 0, 0
    data = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
    }
    params = jax.jit(lambda key: initialize(declare(SMALL), key))(jax.random.key(0))
    return jax.jit(jax.value_and_grad(lambda p: loss_and_metrics(p, SMALL, Loss(), data), has_aux=True))(params)


@pytest.mark.parametrize(("platform", "on_chip"), [("tpu", 0), ("tpu", attention.ON_CHIP), ("cuda", 0)])
def test_every_platform_has_the_same_loss_and_gradient(
    monkeypatch: pytest.MonkeyPatch, platform: str, on_chip: int
) -> None:
    expected = value_and_gradient()
    chosen: list[Callable[..., Any]] = []

    def elsewhere(*operands: Any, default: Callable[..., Any], **branches: Callable[..., Any]) -> Any:
        chosen.append(branches.get(platform, default))
        return chosen[-1](*operands)

    monkeypatch.setattr(jax.lax, "platform_dependent", elsewhere)
    monkeypatch.setattr(attention, "ON_CHIP", on_chip)
    found = value_and_gradient()
    assert chosen
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, expected)
