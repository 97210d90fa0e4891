"""About how much memory a run's step takes on a device, by formula, and the smallest change that would fit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType

from spanloom.model.params import declare, num_params
from spanloom.scale.activations import Rows, activation_bytes
from spanloom.scale.changes import Change, smaller
from spanloom.scale.mesh import Layout, mesh_sizes
from spanloom.scale.rules import rules_of
from spanloom.settings.mesh import AXES
from spanloom.settings.run import Run
from spanloom.training.abstract import abstract_state, device_bytes

_SPARE = 0.97
"""Share of a device's memory that is counted on: what a formula finds nearer to the end is not believed."""

_UNDER_WAY = 3
"""Updates that are gathered at a time: TPU's compiler has about so many of T5 1.1 large on v4."""


@dataclass(frozen=True)
class Needs:
    """Bytes that one device needs."""

    total: float
    available: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    """What for, by name."""

    @property
    def fits(self) -> bool | None:
        """Whether it is enough; None: nobody knows how much there is."""
        return None if self.available is None else self.total <= self.available


def abstract_layout(run: Run, devices: int) -> Layout:
    """The run's layout on so many devices that need not be there. Raises MeshError where it does not fit them."""
    sizes = mesh_sizes(run.mesh, devices)
    mesh: Any = AbstractMesh(tuple(sizes.values()), AXES, axis_types=(AxisType.Auto,) * len(AXES))
    return Layout(mesh, rules_of(run.mesh))


def formula_needs(run: Run, lengths: Mapping[str, int], devices: int, available: float | None = None) -> Needs:
    """About what one of so many devices needs for a resolved run; `lengths` are rows' tokens by side."""
    layout = abstract_layout(run, devices)
    state = abstract_state(run, layout)
    rows = Rows(run.at_a_time / layout.batch_shards, lengths["encoder"], lengths["decoder"], layout.sizes["tensor"])
    activations, specs = activation_bytes(run.model, rows), declare(run.model)
    parts = {
        "weights": float(device_bytes(state.params)),
        "optimizer": float(device_bytes(state.opt_state)),
        "gradients": float(device_bytes(_float32(specs, layout.updates(specs))) * (2 if run.microbatches > 1 else 1)),
        "activations": activations,
    }
    if layout.sizes["data"] > 1:
        updates = sorted(map(device_bytes, jax.tree.leaves(_float32(specs, layout.params(specs)))))
        parts["gathered updates"] = max(sum(updates[-_UNDER_WAY:]) - activations, 0.0)  # they lie where activations lay
    if layout.sizes["fsdp"] > 1:
        parts["gathered weights"] = _gathered_bytes(run) / layout.sizes["tensor"]
    return Needs(sum(parts.values()), available, parts)


def _float32(specs: Any, places: Any) -> Any:
    """Of every parameter a float32 that is divided so, without its numbers."""
    return jax.tree.map(lambda spec, at: jax.ShapeDtypeStruct(spec.shape, jnp.float32, sharding=at), specs, places)


def _gathered_bytes(run: Run) -> float:
    """Of weights as they are used: a layer's, or those of all layers where nothing is computed again."""
    specs, itemsize = declare(run.model), 2 if run.model.dtype == "bfloat16" else 4
    encoder, decoder = num_params(specs.encoder.layers), num_params(specs.decoder.layers)
    if run.model.remat == "none":
        return float(itemsize * (encoder + decoder))
    return itemsize * max(encoder / run.model.num_encoder_layers, decoder / run.model.num_decoder_layers)


def likely_changes(
    run: Run, lengths: Mapping[str, int], devices: int, needed: float | None, available: float
) -> Iterator[Change]:
    """Changes with which the step should fit into `available` bytes, the smallest first.

    `needed`: what the run itself is known to take; the formula is corrected by it. None: nobody knows, but it is too
    much, whatever the formula says; where that finds it too much, changes are those of a plan by formula.
    """
    now = formula_needs(run, lengths, devices)
    off = 1.0
    if needed is not None:
        off = max(needed - _stays(now), 1.0) / max(_passes(now), 1.0)
    elif now.total <= available:
        available = 0.8 * now.total
    for change in smaller(run, devices):
        then = formula_needs(change.run, lengths, devices)
        if _stays(then) + off * _passes(then) <= _SPARE * available:
            yield change


def _stays(needs: Needs) -> float:
    """What is there between the steps."""
    return needs.parts["weights"] + needs.parts["optimizer"]


def _passes(needs: Needs) -> float:
    return needs.total - _stays(needs)
