"""What a step keeps, by formula: the order of policies, and what makes it grow."""

from dataclasses import replace
from typing import get_args, get_type_hints

import pytest

from spanloom.model.remat import KEPT
from spanloom.model.sizes import named
from spanloom.scale.activations import Rows, activation_bytes
from spanloom.settings.model import Model

pytestmark = pytest.mark.short
BASE = named("t5_1_1_base", dtype="bfloat16")
ROWS = Rows(8, 512, 114)


def test_every_policy_keeps_less_than_the_one_before():
    names = get_args(get_type_hints(Model)["remat"])
    sizes = [activation_bytes(replace(BASE, remat=name), ROWS) for name in names]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes) == len(KEPT) + 1


@pytest.mark.parametrize("remat", ["none", *KEPT])
def test_it_grows_with_rows_and_lengths_and_types_and_shrinks_with_devices(remat):
    model = replace(BASE, remat=remat)
    base = activation_bytes(model, ROWS)
    assert (
        activation_bytes(model, replace(ROWS, number=16)) > base < activation_bytes(model, replace(ROWS, encoder=700))
    )
    assert activation_bytes(replace(model, dtype="float32"), ROWS) > base
    assert activation_bytes(model, replace(ROWS, tensor=4)) < base


def test_full_keeps_the_input_of_each_layer_alone():
    deep = replace(BASE, remat="full", num_encoder_layers=13)
    more = activation_bytes(deep, ROWS) - activation_bytes(replace(BASE, remat="full"), ROWS)
    assert more == 8 * 512 * 768 * 2
