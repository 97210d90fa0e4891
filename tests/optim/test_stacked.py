"""Layers that are stacked, and arrays that are divided among devices, move as those that are neither."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimizer_cases import SPECS, made, stacked, stepped

from spanloom.model.params import flatten
from spanloom.optim.build import build
from spanloom.settings.optimizer import Adafactor, AdamW, AdamWRMS, Constant, Lion, Muon, ScheduleFree
from spanloom.settings.weights import Weights

pytestmark = pytest.mark.exact  # Muon's iteration makes much of the last digit

OPTIMIZERS = [
    Adafactor(learning_rate=0.05, min_dim_size_to_factor=4),
    AdamW(learning_rate=0.05, weight_decay=0.1),
    AdamWRMS(learning_rate=0.05, weight_decay=0.1),
    Lion(learning_rate=0.01, weight_decay=0.1),
    Muon(learning_rate=0.05, weight_decay=0.1),
    ScheduleFree(learning_rate=0.05, weight_decay=0.1),
]


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda s: type(s).__name__)
def test_stacked_layers_move_as_if_each_stood_alone(settings):
    """Of very different size, so that anything averaged over the layers would show."""
    layers, sizes = 3, (0.01, 1.0, 30.0)
    whole = made(0, stacked(layers))
    whole = {name: leaf * jnp.reshape(jnp.asarray(sizes), (-1, *[1] * (leaf.ndim - 1))) for name, leaf in whole.items()}
    grads = [made(10 + step, stacked(layers), size=0.01) for step in range(4)]  # below the limit of clipping
    together, state = stepped(build(settings, Constant(), stacked(layers)), whole, grads)
    for layer in range(layers):
        own = [{name: leaf[layer] for name, leaf in grad.items()} for grad in grads]
        alone, own_state = stepped(
            build(settings, Constant(), SPECS), {name: leaf[layer] for name, leaf in whole.items()}, own
        )
        for name in SPECS:
            np.testing.assert_allclose(together[name][layer], alone[name], rtol=2e-5, atol=1e-7, err_msg=name)
        for name, leaf in flatten(own_state).items():
            if leaf.ndim and name.split("/")[-1] in SPECS:
                np.testing.assert_allclose(flatten(state)[name][layer], leaf, rtol=2e-5, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("settings", OPTIMIZERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("weights", [Weights(), Weights("bfloat16", "kahan", 0.9)], ids=["float32", "bfloat16"])
def test_what_a_state_keeps_of_a_parameter_ends_in_its_name_and_has_its_shape(settings, weights):
    """That is how it is divided among devices: as the parameter is."""
    if isinstance(settings, ScheduleFree) and weights.dtype == "bfloat16":
        return  # refused by the settings
    params = made(0)
    state = build(settings, Constant(), SPECS, weights).init(params)
    for name, leaf in flatten(state).items():
        owner = name.split("/")[-1]
        if owner in SPECS:
            factors = {"v_row", "v_col"} & set(name.split("/"))
            assert leaf.shape == params[owner].shape or factors, name
        else:
            assert leaf.size <= 3, name


DIVIDED = """
import os
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
import jax, numpy as np, optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from optimizer_cases import made, stacked
from optim.test_stacked import OPTIMIZERS
from spanloom.optim.averaged import averaged_params
from spanloom.optim.build import build
from spanloom.settings.optimizer import Constant, ScheduleFree
from spanloom.settings.weights import Weights

specs = stacked(2)
mesh = jax.make_mesh((2, 4), ("fsdp", "tensor"), axis_types=(AxisType.Auto,) * 2)
axes = {"kernel": P(None, "fsdp", "tensor"), "scale": P(), "table": P(None, None, "tensor"), "bias": P(None, "fsdp")}
place = lambda tree: {name: jax.device_put(leaf, NamedSharding(mesh, axes[name])) for name, leaf in tree.items()}
for settings in OPTIMIZERS:
    for weights in (Weights(ema_decay=0.5), Weights("bfloat16", ema_decay=0.5)):
        if isinstance(settings, ScheduleFree):
            weights = Weights()
        optimizer = build(settings, Constant(), specs, weights, seed=3)
        ends = []
        for put in (lambda tree: tree, place):
            params = put({name: leaf.astype(weights.dtype) for name, leaf in made(0, specs).items()})
            state = jax.jit(optimizer.init)(params)
            @jax.jit
            def step(grads, state, params):
                updates, state = optimizer.update(grads, state, params)
                return optax.apply_updates(params, updates), state
            for number in range(3):
                params, state = step(put(made(5 + number, specs)), state, params)
            ends.append((params, jax.jit(averaged_params)(state, params)))
        moved = [np.float32(leaf) for leaf in jax.tree.leaves(ends[0])]
        for one, many in zip(moved, jax.tree.leaves(ends[1]), strict=True):
            close = dict(rtol=1e-2, atol=1e-3) if weights.dtype == "bfloat16" else dict(rtol=2e-5, atol=1e-6)
            np.testing.assert_allclose(one, np.float32(many), **close, err_msg=str(settings))
        kernel = ends[1][0]["kernel"]
        print(type(settings).__name__, weights.dtype, kernel.sharding.spec)
"""


def test_divided_arrays_move_alike():
    ended = subprocess.run(
        [sys.executable, "-c", DIVIDED], cwd=Path(__file__).parent.parent, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(ended.stdout.splitlines()) == 2 * len(OPTIMIZERS)
    assert all("'fsdp', 'tensor'" in line for line in ended.stdout.splitlines()), ended.stdout
    assert jax.device_count() == 1
