"""The training step of a run without any array: shapes and shardings, for compilers and for counting bytes."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model.params import declare
from spanloom.optim.build import build as build_optimizer
from spanloom.optim.build import learning_rate
from spanloom.scale.mesh import Layout, placement_of
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.training.state import TrainState, state_places, state_shapes
from spanloom.training.step import make_train_step

_ENCODER = ("encoder_input_tokens",)
_DECODER = ("decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights")
_SEGMENTS = ("segment_ids", "positions")


def abstract_state(run: Run, layout: Layout) -> TrainState:
    """The state of training as `jax.ShapeDtypeStruct`s, divided as the run's is."""
    specs = declare(run.model)
    optimizer = build_optimizer(run.optimizer, run.schedule, specs, run.weights, run.seed)
    shapes = state_shapes(specs, optimizer, run.weights)
    return jax.tree.map(_struct, shapes, state_places(specs, shapes, layout))


def abstract_batch(run: Run, lengths: Mapping[str, int], layout: Layout) -> dict[str, jax.ShapeDtypeStruct]:
    """A batch; `lengths` are those of an encoder row and a decoder row, in tokens."""
    names = {**dict.fromkeys(_ENCODER, "encoder"), **dict.fromkeys(_DECODER, "decoder")}
    if isinstance(run.packing, Packed):
        names |= {f"{side}_{name}": side for side in ("encoder", "decoder") for name in _SEGMENTS}
    return {
        name: jax.ShapeDtypeStruct((run.batch_size, lengths[side]), jnp.int32, sharding=layout.batch)
        for name, side in names.items()
    }


def lower_step(run: Run, lengths: Mapping[str, int], layout: Layout) -> jax.stages.Lowered:
    """The training step, ready to be compiled for the layout's devices."""
    specs = declare(run.model)
    optimizer = build_optimizer(run.optimizer, run.schedule, specs, run.weights, run.seed)
    rate = learning_rate(run.optimizer, run.schedule)
    step = make_train_step(
        run.model,
        run.loss,
        optimizer,
        rate,
        run.seed,
        run.microbatches,
        skip_nonfinite=run.stopping.nonfinite == "skip",
        place=placement_of(layout),
    )
    state = abstract_state(run, layout)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    # Without the options of this machine's compiler, which others do not know.
    plain = jax.jit(
        step.__wrapped__,  # type: ignore[attr-defined]
        donate_argnames="state",
        out_shardings=(places, layout.replicated),
    )
    return plain.lower(state, abstract_batch(run, lengths, layout))


def device_bytes(tree: Any) -> int:
    """Bytes that one device keeps of a tree of arrays, or of `jax.ShapeDtypeStruct`s with shardings."""
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def whole_bytes(tree: Any) -> int:
    """Bytes of a tree of arrays, or of anything with shapes and dtypes, wherever they lie."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _struct(shape: jax.ShapeDtypeStruct, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)
