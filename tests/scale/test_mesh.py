"""Meshes: their sizes, what they divide, and that they decide nothing but rounding (8 simulated devices)."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from spanloom.model.params import declare
from spanloom.model.placement import ANYWHERE
from spanloom.model.sizes import named
from spanloom.optim.build import build
from spanloom.scale.mesh import MeshError, check_batch, heldout_batch, make_layout, mesh_sizes, placement_of
from spanloom.settings.mesh import AXES, Mesh
from spanloom.settings.optimizer import Adafactor, AdamW, Constant
from spanloom.training.state import fresh_state, state_places

PROGRAM = Path(__file__).parents[1] / "mesh_process.py"
STEPS = 20
SHAPES = [shape for shape in itertools.product((1, 2, 4, 8), repeat=4) if np.prod(shape) == 8]
assert len(SHAPES) == 20


def train(cases, steps=STEPS):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    command = [sys.executable, str(PROGRAM), str(steps), *map(json.dumps, cases)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def furthest(one, other):
    return max(abs(a - b) / a for a, b in zip(one["losses"], other["losses"], strict=True))


def test_every_shape_of_mesh_gives_the_losses_of_one_device():
    cases = [{"mesh": dict(zip(AXES, shape, strict=True))} for shape in SHAPES]
    one, *others = train([{"mesh": {}, "devices": 1}, *cases])
    for shape, other in zip(SHAPES, others, strict=True):
        assert furthest(one, other) < 1e-5, shape
        _, data, fsdp, tensor = shape
        expected = {"weights": 1 / (fsdp * tensor), "moments": 1 / (data * fsdp * tensor), "average": 0}
        assert other["shares"] == expected, shape


class Chip:
    """A device of slices of 2 x 2 chips."""

    platform, device_kind, core_on_chip = "tpu", "TPU v4", 0

    def __init__(self, number):
        self.id = number
        self.slice_index = self.process_index = number // 4
        self.coords = (*divmod(number % 4, 2), 0)


def test_slices_lie_along_replica():
    devices = [Chip(number) for number in range(8)]
    with pytest.raises(MeshError, match=r"2 slices of TPUs, .* mesh.replica is 1: give --mesh.replica 2"):
        make_layout(Mesh(), devices)
    layout = make_layout(Mesh(replica=2), devices)
    assert dict(layout.sizes) == {"replica": 2, "data": 4, "fsdp": 1, "tensor": 1}
    assert {device.slice_index for device in layout.mesh.devices[0].flat} == {0}


VARIANTS = {
    "unrolled": {"model": {"scan_layers": False}},
    "packed": {"packed": True},
    "microbatches": {"microbatches": 4, "normalizer": "sequences"},
    "adafactor": {"optimizer": "adafactor"},
    "dropout": {"model": {"dropout": 0.1}},
    # With seed 0 one of 120,000 inputs of a ReLU is so near to 0 that rounding decides whether it passes.
    "T5 1.0": {"model": {"tie_embeddings": True, "activations": ["relu"]}, "seed": 5},
    "umT5": {"model": {"per_layer_position_bias": True}},
    "remat": {"model": {"remat": "full"}},
    "remat, unrolled": {"model": {"remat": "cheap", "scan_layers": False}},
    "momentum": {"optimizer": "momentum"},
    "muon": {"optimizer": "muon"},
    "schedule-free": {"optimizer": "schedule_free"},
    "average": {"weights": {"ema_decay": 0.9}},
    "kahan": {"weights": {"dtype": "bfloat16", "rounding": "kahan"}},
    "kernel": {"model": {"attention": "pallas"}, "packed": True},
}


@pytest.mark.parametrize("rules", ["t5x_a1_p1", "t5x_a2_p1", "t5x_a2_p2"])
def test_rules_decide_nothing_but_rounding(rules):
    mesh = {"fsdp": 2, "tensor": 2, "rules": rules}
    one, other = train([{"mesh": {}, "devices": 1}, {"mesh": mesh}])
    assert furthest(one, other) < 1e-5


def test_variants_give_the_losses_of_one_device():
    cases = []
    for variant in VARIANTS.values():
        cases += [{"mesh": {}, "devices": 1, **variant}, {"mesh": {"fsdp": 2, "tensor": 2}, **variant}]
    found = train(cases, steps=8)
    for name, one, other in zip(VARIANTS, found[::2], found[1::2], strict=True):
        assert furthest(one, other) < (1e-5 if name != "kahan" else 1e-2), name  # half a step is 4e-3 of a bfloat16
        assert other["shares"]["moments"] in (0, 1 / 8), name
        assert other["shares"]["average"] == (1 / 4 if name in ("average", "schedule-free") else 0), name


@pytest.mark.parametrize(
    ("asked", "count", "sizes"),
    [
        (Mesh(), 8, (1, 8, 1, 1)),
        (Mesh(fsdp=8), 8, (1, 1, 8, 1)),
        (Mesh(fsdp=2, tensor=2), 8, (1, 2, 2, 2)),
        (Mesh(fsdp="auto", tensor=4), 32, (1, 1, 8, 4)),
        (Mesh(replica=2, data=1, fsdp="auto"), 16, (2, 1, 8, 1)),
        (Mesh(data=1), 1, (1, 1, 1, 1)),
    ],
)
def test_sizes(asked, count, sizes):
    assert tuple(mesh_sizes(asked, count).values()) == sizes


@pytest.mark.parametrize(
    ("asked", "count", "message"),
    [
        (Mesh(tensor=3), 8, "the mesh tensor 3 does not fit 8 devices|tensor 3"),
        (Mesh(data=2, fsdp=2), 8, "leave --mesh.data auto"),
        (Mesh(fsdp="auto", tensor="auto"), 8, "mesh.fsdp and mesh.tensor are both auto"),
        (Mesh(fsdp=0), 8, "mesh.fsdp is 0: must be at least 1"),
    ],
)
def test_meshes_that_do_not_fit_are_refused(asked, count, message):
    with pytest.raises(MeshError, match=message):
        mesh_sizes(asked, count)


class Shards:
    """A layout of so many parts."""

    def __init__(self, parts):
        self.batch_shards = parts


def test_a_batch_that_cannot_be_divided_is_refused():
    check_batch(Shards(8), 128)
    with pytest.raises(MeshError, match=r"batch_size is 12, which 8 parts .* take 8 or 16"):
        check_batch(Shards(8), 12)


def test_one_device_is_asked_nothing():
    layout = make_layout(Mesh(), jax.devices()[:1])
    assert placement_of(layout) is ANYWHERE
    assert layout.shares == layout.shares and layout.shares[0].rows(16) == (0, 16)
    padded = heldout_batch(layout, {"x": np.ones((3, 2), np.int32)})
    assert padded["x"].shape == (3, 2)


@pytest.mark.parametrize("optimizer", [Adafactor(), AdamW()])
def test_an_optimizer_s_state_is_divided_as_the_gradients(optimizer):
    specs = declare(named("t5_1_1_small"))
    layout = make_layout(Mesh(), jax.devices()[:1])
    built = build(optimizer, Constant(), specs)
    params = jax.tree.map(lambda spec: jax.ShapeDtypeStruct(spec.shape, np.float32), specs)
    state = jax.eval_shape(lambda params: fresh_state(params, built), params)
    placed = state_places(specs, state, layout)
    flat = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(placed)[0]}
    shapes = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]}
    assert flat.keys() == shapes.keys()
    divided = [name for name, sharding in flat.items() if any(sharding.spec)]
    assert any("params" in name for name in divided)
    if isinstance(optimizer, AdamW):
        assert sum("mu" in name for name in divided) == sum("params" in name for name in divided)
    else:
        assert not any("v_row" in name or "v_col" in name for name in divided)
