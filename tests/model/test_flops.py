import dataclasses

import numpy as np
import pytest

from spanloom.model.flops import forward_flops, train_flops
from spanloom.settings.model import Model

pytestmark = pytest.mark.short

MODEL = Model(vocab_size=64, d_model=8, d_ff=16, num_heads=2, d_kv=3, num_encoder_layers=2, num_decoder_layers=1)


def product(rows, inner, columns):
    return 2 * rows * inner * columns


def test_every_matrix_product_by_hand():
    s, t, d, f, i, v = 5, 3, 8, 16, 6, 64
    encoder = 4 * product(s, d, i) + 2 * product(s, i, s) + 3 * product(s, d, f)
    decoder = 4 * product(t, d, i) + 2 * product(t, i, t) + 3 * product(t, d, f)
    cross = 2 * product(t, d, i) + 2 * product(s, d, i) + 2 * product(t, i, s)
    assert forward_flops(MODEL, s, t) == 2 * encoder + decoder + cross + product(t, d, v)


def test_a_step_is_three_times_as_much_for_every_sequence():
    batch = {"encoder_input_tokens": np.zeros((7, 5)), "decoder_target_tokens": np.zeros((7, 3))}
    assert train_flops(MODEL, batch) == 21 * forward_flops(MODEL, 5, 3)


def test_one_activation_has_two_matrices():
    plain = dataclasses.replace(MODEL, activations=("relu",))
    assert forward_flops(MODEL, 5, 3) - forward_flops(plain, 5, 3) == 2 * product(5, 8, 16) + product(3, 8, 16)
