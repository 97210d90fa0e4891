import jax
import numpy as np
import pytest

from spanloom.model.flops import forward_flops, train_flops
from spanloom.model.loss import loss_and_metrics
from spanloom.model.params import declare
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

CONFIG = Model(
    vocab_size=2000,
    d_model=256,
    d_ff=512,
    num_heads=4,
    d_kv=48,
    num_encoder_layers=3,
    num_decoder_layers=2,
    scan_layers=False,
)


def counted(function: object, *args: object) -> float:
    analysis = jax.jit(function).lower(*args).cost_analysis()  # type: ignore[arg-type]
    assert analysis is not None
    return float(analysis["flops"])


def shapes(rows: int, inputs: int, targets: int) -> dict[str, jax.ShapeDtypeStruct]:
    lengths = {"encoder_input_tokens": inputs, "decoder_target_tokens": targets, "decoder_input_tokens": targets}
    return {name: jax.ShapeDtypeStruct((rows, length), np.int32) for name, length in lengths.items()}


def test_forward_flops_are_xla_s_within_five_per_cent() -> None:
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, np.float32), declare(CONFIG))
    xla = counted(lambda p, b: forward(p, CONFIG, b), params, shapes(4, 96, 40))
    assert forward_flops(CONFIG, 4, 96, 40) == pytest.approx(xla, rel=0.05)
    assert forward_flops(CONFIG, 4, 96, 40) < xla  # XLA also counts what is no matrix product


def test_train_flops_are_xla_s_within_eight_per_cent() -> None:
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, np.float32), declare(CONFIG))
    grad = jax.grad(lambda p, b: loss_and_metrics(p, CONFIG, Loss(), b)[0])
    xla = counted(grad, params, shapes(4, 96, 40))
    assert train_flops(CONFIG, 4, 96, 40) == pytest.approx(xla, rel=0.08)


@pytest.mark.short
def test_without_attention_it_is_six_times_weights_times_tokens() -> None:
    # 6 N D with every matrix applied to every token once (Kaplan et al. 2020)
    config = Model(
        vocab_size=1000, d_model=64, d_ff=4096, num_heads=1, d_kv=1, num_encoder_layers=1, num_decoder_layers=1
    )
    weights = 2 * 3 * 64 * 4096 + 64 * 1000
    assert train_flops(config, 8, 16, 16) == pytest.approx(6 * weights * 8 * 16, rel=0.005)
