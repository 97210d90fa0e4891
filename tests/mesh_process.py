"""Trains small models on 8 simulated devices in several meshes; prints losses and checks as JSON.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/mesh_process.py STEPS CASE [CASE ...]

A case is JSON: {"mesh": {...}, "model": {...}, "run": {...}, "devices": N}.
"""

import dataclasses
import json
import sys

import jax
import numpy as np

from spanloom.model.params import declare
from spanloom.optim.build import build, learning_rate
from spanloom.scale.mesh import make_layout, placement_of
from spanloom.settings.mesh import Mesh
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Adafactor, AdamW, Constant, Muon, ScheduleFree
from spanloom.settings.run import Loss
from spanloom.settings.weights import Weights
from spanloom.training.state import averaged_weights, drawn_weights, fresh_state, state_places, state_shapes
from spanloom.training.step import make_train_step

MODEL = Model(384, d_model=64, d_ff=96, num_heads=8, d_kv=16, num_encoder_layers=2, num_decoder_layers=2)

OPTIMIZERS = {
    "adamw": AdamW(),
    "adafactor": Adafactor(min_dim_size_to_factor=32, learning_rate=1e-2),
    "momentum": Adafactor(min_dim_size_to_factor=32, learning_rate=1e-2, beta1=0.9, global_norm_clip=0.1),
    "muon": Muon(),
    "schedule_free": ScheduleFree(),
}


def batch(step: int, packed: bool) -> dict[str, np.ndarray]:
    random = np.random.default_rng([7, step])
    inputs, targets = (random.integers(3, 259, (16, n), dtype=np.int32) for n in (40, 16))
    inputs[1, 30:], targets[2, 11:] = 0, 0
    fields = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_input_tokens": np.pad(targets[:, :-1], [(0, 0), (1, 0)]),
        "decoder_loss_weights": (targets > 0).astype(np.int32),
    }
    if packed:
        fields["encoder_segment_ids"] = ((np.arange(40) // 20 + 1) * (inputs > 0)).astype(np.int32)
        fields["decoder_segment_ids"] = ((np.arange(16) // 8 + 1) * (targets > 0)).astype(np.int32)
    return fields


def train(case: dict, steps: int) -> dict:
    model = dataclasses.replace(MODEL, **case.get("model", {}))
    optimizer = OPTIMIZERS[case.get("optimizer", "adamw")]
    weights = Weights(**case.get("weights", {}))
    layout = make_layout(Mesh(**case["mesh"]), jax.devices()[: case.get("devices", 8)])
    specs = declare(model)
    built = build(optimizer, Constant(), specs, weights)
    key = jax.random.key(case.get("seed", 0))
    places = state_places(specs, state_shapes(specs, built, weights), layout)
    state = jax.jit(lambda key: fresh_state(drawn_weights(specs, weights, key), built), out_shardings=places)(key)
    step = make_train_step(
        model,
        Loss(normalizer=case.get("normalizer", "real_tokens")),
        built,
        learning_rate(optimizer, Constant()),
        0,
        case.get("microbatches", 1),
        place=placement_of(layout),
        shardings=(places, layout.replicated),
    )
    packed = case.get("packed", False)
    compiled = step.lower(state, layout.put_batch(batch(0, packed), 16)).compile()
    losses = []
    for number in range(steps):
        state, metrics = compiled(state, layout.put_batch(batch(number, packed), 16))
        losses.append(float(metrics["loss"]))
    kept = {"weights": jax.tree.leaves(state.params), "moments": moments(state)}
    kept["average"] = jax.tree.leaves(averaged_weights(state))
    return {"losses": losses, "shares": {name: largest_share(leaves) for name, leaves in kept.items()}}


def moments(state) -> list:
    """What the optimizer keeps for every number of a matrix."""
    shapes = {leaf.shape for leaf in jax.tree.leaves(state.params)}
    return [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.shape in shapes]


def largest_share(leaves) -> float:
    return max((x.addressable_shards[0].data.size / x.size for x in leaves if x.size > 4096), default=0)


if __name__ == "__main__":
    print(json.dumps([train(json.loads(case), int(sys.argv[1])) for case in sys.argv[2:]]))
