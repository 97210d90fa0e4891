import jax
import numpy as np
import pytest
from golden_data import golden_dir
from golden_models import read_npz

from spanloom.conversion.t5x_names import from_t5x, is_scanned, model_settings, to_t5x
from spanloom.model.params import declare, flatten
from spanloom.settings.model import Model

CONFIG = Model(
    vocab_size=30,
    d_model=8,
    d_ff=12,
    num_heads=2,
    d_kv=3,
    num_encoder_layers=3,
    num_decoder_layers=2,
    per_layer_position_bias=True,
)


def ours() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return flatten(jax.tree.map(lambda spec: random.random(spec.shape, np.float32), declare(CONFIG)))


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@pytest.mark.short
@pytest.mark.parametrize("scanned", [True, False])
def test_there_and_back(scanned: bool) -> None:
    flat = ours()
    theirs = to_t5x(CONFIG, flat, scanned=scanned)
    assert is_scanned(theirs) == scanned
    same(from_t5x(theirs), flat)
    same(from_t5x({f"target/{name}": leaf for name, leaf in theirs.items()}), flat)


@pytest.mark.short
def test_shapes_of_each_layout() -> None:
    scanned = to_t5x(CONFIG, ours(), scanned=True)
    assert scanned["encoder/encoder/attention/query/kernel"].shape == (8, 3, 2, 3)
    assert scanned["decoder/decoder/self_attention/out/kernel"].shape == (2, 2, 3, 8)
    assert scanned["encoder/encoder/relpos_bias/rel_embedding"].shape == (2, 3, 32)
    assert scanned["encoder/encoder/pre_mlp_layer_norm/scale"].shape == (8, 3)
    apart = to_t5x(CONFIG, ours(), scanned=False)
    assert apart["encoder/layers_2/attention/query/kernel"].shape == (8, 6)


@pytest.mark.short
def test_layers_apart_with_heads_apart() -> None:
    flat = ours()
    apart = to_t5x(CONFIG, flat, scanned=False)
    for name, leaf in apart.items():
        if name.endswith(("query/kernel", "key/kernel", "value/kernel")):
            apart[name] = leaf.reshape(8, 2, 3)
        elif name.endswith("out/kernel"):
            apart[name] = leaf.reshape(2, 3, 8)
    same(from_t5x(apart), flat)


@pytest.mark.short
def test_what_does_not_fit_is_said() -> None:
    theirs = to_t5x(CONFIG, ours(), scanned=False)
    del theirs["decoder/layers_0/mlp/wo/kernel"]
    with pytest.raises(ValueError, match="decoder/layers/mlp/wo/kernel is missing in layers"):
        from_t5x(theirs)
    with pytest.raises(ValueError, match="no layout"):
        from_t5x({"encoder/layers_0/mlp/wo/kernel": np.zeros((2, 2, 2))})
    with pytest.raises(ValueError, match="decoder_only"):
        model_settings({}, network="decoder_only")


@pytest.mark.golden
def test_golden_parameters_there_and_back_to_the_bit() -> None:
    files = sorted(golden_dir("t5x", "models").glob("*/params.npz"))
    assert files
    for file in files:
        theirs = read_npz(file)
        flat = from_t5x(theirs)
        settings = Model(1, 1, 1, 1, 1, 1, 1)
        if is_scanned(theirs):
            heads, d_kv = theirs["encoder/encoder/attention/query/kernel"].shape[-2:]
            settings = Model(1, 1, 1, heads, d_kv, 1, 1)
        same(to_t5x(settings, flat, scanned=is_scanned(theirs)), theirs)
