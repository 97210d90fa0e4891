import jax
import jax.numpy as jnp
import numpy as np
from optimizer_cases import SPECS, made, stacked

from spanloom.model.params import declare, initialize, num_params
from spanloom.model.sizes import named
from spanloom.optim.parameter_rms import KINDS, by_layer, parameter_rms


def test_is_the_root_mean_square_of_each_layer():
    specs = {**stacked(3), "alone": SPECS["kernel"]}
    trees = [made(seed, specs, size=10.0**seed) for seed in range(3)]
    measured = jax.jit(lambda *trees: parameter_rms(specs, *trees))(*trees)
    assert set(measured) == set(KINDS)
    for kind, tree in zip(KINDS, trees, strict=True):
        for name, leaf in tree.items():
            got = np.float64(measured[kind][name])
            layers = [leaf] if name == "alone" else list(leaf)
            expected = [np.sqrt(np.mean(np.float64(layer) ** 2)) for layer in layers]
            assert got.shape == (() if name == "alone" else (3,))
            np.testing.assert_allclose(got.reshape(-1), expected, rtol=1e-5)


def test_every_layer_of_a_model_has_a_line_under_t5xs_name():
    specs = declare(named("byt5_nano"))
    params = initialize(specs, jax.random.key(0))
    lines = by_layer(jax.device_get(parameter_rms(specs, params, params, jax.tree.map(jnp.zeros_like, params))))
    assert lines["encoder/layers_0/pre_mlp_layer_norm/scale"] == {"weight": 1.0, "gradient": 1.0, "update": 0.0}
    assert "decoder/decoder_norm/scale" in lines and not any("/layers/" in name for name in lines)
    assert num_params(specs) > 0 and all(set(line) == set(KINDS) for line in lines.values())
