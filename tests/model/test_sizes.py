import subprocess
import sys

import pytest

from spanloom.model.params import declare, num_params
from spanloom.model.sizes import SIZES, named


@pytest.mark.short
@pytest.mark.parametrize(
    ("name", "count"),
    [
        # As counted by T5X and in the models' cards and papers.
        ("t5_small", 60_506_624),
        ("t5_base", 222_903_552),
        ("t5_large", 737_668_096),
        ("t5_3b", 2_851_598_336),
        ("t5_11b", 11_307_321_344),
        ("t5_1_1_small", 76_961_152),
        ("t5_1_1_base", 247_577_856),
        ("t5_1_1_large", 783_150_080),
        ("t5_1_1_xl", 2_849_757_184),
        ("t5_1_1_xxl", 11_135_332_352),
        ("mt5_small", 300_176_768),
        ("mt5_base", 582_401_280),
        ("mt5_large", 1_229_581_312),
        ("mt5_xl", 3_742_619_648),
        ("mt5_xxl", 12_921_057_280),
        ("byt5_small", 299_637_760),
        ("byt5_base", 581_653_248),
        ("byt5_large", 1_228_183_552),
        ("byt5_xl", 3_737_801_728),
        ("byt5_xxl", 12_906_899_328),
        ("t5_1_1_tiny", 518_240),
    ],
)
def test_published_numbers_of_parameters(name: str, count: int) -> None:
    assert num_params(declare(SIZES[name])) == count


@pytest.mark.short
def test_every_family_has_every_size_and_knows_its_name() -> None:
    for family in ("t5", "t5_1_1", "mt5", "byt5", "umt5"):
        for size in ("tiny", "small", "base", "large", "xl", "xxl"):
            assert named(f"{family}_{size}").name == f"{family}_{size}"
    assert all(SIZES[name].per_layer_position_bias == name.startswith("umt5") for name in SIZES)
    assert {name for name in SIZES if SIZES[name].tie_embeddings} == {
        name for name in SIZES if name.startswith("t5_") and not name.startswith("t5_1_1")
    }


@pytest.mark.short
def test_small_ones_of_our_own() -> None:
    assert 1e6 < num_params(declare(named("byt5_nano"))) < 2e6
    assert 5e6 < num_params(declare(named("byt5_micro"))) < 8e6


@pytest.mark.short
def test_ul2_has_a_gate_of_its_own() -> None:
    assert 19.4e9 < num_params(declare(named("ul2_20b"))) < 19.6e9
    assert [name for name in SIZES if SIZES[name].activations == ("silu", "linear")] == ["ul2_20b"]


@pytest.mark.short
def test_overrides_and_spelling() -> None:
    model = named("T5-1.1-small", dropout=0.1, scan_layers=False)
    assert (model.d_model, model.dropout, model.scan_layers) == (512, 0.1, False)


@pytest.mark.short
def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="byt5_small"):
        named("byt5_smal")
    with pytest.raises(ValueError, match="d_model"):
        named("byt5_small", dmodel=3)


@pytest.mark.short
def test_sizes_import_nothing_heavy() -> None:
    code = "import sys, spanloom.model.sizes; print([m for m in ('jax', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
