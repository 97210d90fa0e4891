import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model.params import ParamSpec, declare, flatten, initialize, num_params, stack, unflatten, unstack
from spanloom.model.sizes import named
from spanloom.settings.model import Model

SMALL = Model(vocab_size=300, d_model=128, d_ff=192, num_heads=4, d_kv=16, num_encoder_layers=3, num_decoder_layers=2)


def test_initial_values_have_t5x_distributions() -> None:
    flat = flatten(initialize(declare(SMALL), jax.random.key(1)))
    expected = {
        "token_embedder/embedding": 1.0,
        "encoder/layers/attention/query/kernel": 1 / math.sqrt(128 * 16),
        "encoder/layers/attention/key/kernel": 1 / math.sqrt(128),
        "decoder/layers/encoder_decoder_attention/value/kernel": 1 / math.sqrt(128),
        "decoder/layers/self_attention/out/kernel": 1 / math.sqrt(4 * 16),
        "encoder/layers/mlp/wi_0/kernel": 1 / math.sqrt(128),
        "decoder/layers/mlp/wo/kernel": 1 / math.sqrt(192),
        "decoder/logits_dense/kernel": 1 / math.sqrt(128),
        "encoder/relpos_bias/rel_embedding": math.sqrt(2 / (4 + 32)),
    }
    for name, deviation in expected.items():
        values = np.asarray(flat[name])
        assert values.dtype == np.float32
        assert values.std() == pytest.approx(deviation, rel=8 / math.sqrt(values.size)), name
        assert abs(values.mean()) < 5 * deviation / math.sqrt(values.size), name
    for name in ("encoder/layers/mlp/wi_0/kernel", "decoder/logits_dense/kernel"):
        cut = 2 * expected[name] / 0.87962566103423978
        assert 0.97 * cut < np.abs(flat[name]).max() <= cut * 1.0001
    assert np.abs(flat["encoder/layers/attention/key/kernel"]).max() > 3.5 / math.sqrt(128)  # not cut off
    bound = math.sqrt(3 / 18)
    assert 0.9 * bound < np.abs(flat["encoder/relpos_bias/rel_embedding"]).max() <= bound
    assert (flat["encoder/layers/pre_mlp_layer_norm/scale"] == 1).all()


def test_initial_values_depend_on_key_and_name_alone() -> None:
    one = flatten(initialize(declare(SMALL), jax.random.key(1)))
    again = flatten(initialize(declare(replace(SMALL, per_layer_position_bias=True)), jax.random.key(1)))
    for name in one.keys() & again.keys():
        np.testing.assert_array_equal(one[name], again[name])
    other = flatten(initialize(declare(SMALL), jax.random.key(2)))
    assert not np.array_equal(one["token_embedder/embedding"], other["token_embedder/embedding"])
    layers = one["encoder/layers/mlp/wo/kernel"]
    assert not np.array_equal(layers[0], layers[1])


@pytest.mark.short
def test_names_shapes_and_axes() -> None:
    specs = flatten(declare(SMALL))
    query = specs["encoder/layers/attention/query/kernel"]
    assert isinstance(query, ParamSpec)
    assert (query.shape, query.axes) == ((3, 128, 64), ("layers", "embed", "joined_kv"))
    assert specs["encoder/relpos_bias/rel_embedding"].axes == ("heads", "relpos_buckets")
    assert "decoder/layers/mlp/wi/kernel" not in specs
    relu = flatten(declare(replace(SMALL, activations=("relu",), tie_embeddings=True)))
    assert "decoder/layers/mlp/wi/kernel" in relu and "decoder/logits_dense/kernel" not in relu
    own = flatten(declare(replace(SMALL, per_layer_position_bias=True)))
    assert own["encoder/layers/relpos_bias/rel_embedding"].shape == (3, 4, 32)
    assert all(len(spec.shape) == len(spec.axes) for spec in specs.values())


@pytest.mark.short
def test_flatten_and_stack_have_inverses() -> None:
    params = jax.tree.map(lambda spec: np.random.default_rng(0).random(spec.shape), declare(SMALL))
    flat = flatten(params)
    apart = unstack(flat)
    assert apart["decoder/layers_1/mlp/wo/kernel"].shape == (192, 128)
    again = stack(dict(reversed(apart.items())))
    assert again.keys() == flat.keys()
    for name in flat:
        np.testing.assert_array_equal(again[name], flat[name])
    tree = unflatten(SMALL, dict(reversed(flat.items())))
    assert jax.tree.structure(tree) == jax.tree.structure(params)
    assert num_params(tree) == num_params(declare(SMALL))
    assert isinstance(stack({"a/layers_0/b": jnp.ones(2), "a/layers_1/b": jnp.ones(2)})["a/layers/b"], jax.Array)


@pytest.mark.short
def test_what_does_not_fit_is_named() -> None:
    flat = {name: np.zeros(spec.shape) for name, spec in flatten(declare(SMALL)).items()}
    with pytest.raises(ValueError, match="decoder/decoder_norm/scale"):
        unflatten(SMALL, {name: leaf for name, leaf in flat.items() if name != "decoder/decoder_norm/scale"})
    with pytest.raises(ValueError, match=r"unexpected.*more"):
        unflatten(SMALL, {**flat, "more": np.zeros(1)})
    with pytest.raises(ValueError, match=r"token_embedder/embedding has shape \(2, 2\)"):
        unflatten(SMALL, {**flat, "token_embedder/embedding": np.zeros((2, 2))})
    apart = unstack(flat)
    del apart["encoder/layers_1/mlp/wo/kernel"]
    with pytest.raises(ValueError, match=r"mlp/wo/kernel is missing in layers \[1\]"):
        stack(apart)


@pytest.mark.short
@pytest.mark.parametrize(
    "change",
    [
        {"d_model": 0},
        {"activations": ("tanh",)},
        {"activations": ()},
        {"dropout": 1.0},
        {"dtype": "float16"},
        {"relative_position_buckets": 7},
        {"relative_position_max_distance": 16},
    ],
)
def test_settings_that_are_no_model_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=f"model.{next(iter(change))}" if "distance" not in str(change) else "distance"
    ):
        declare(named("byt5_nano", **change))
