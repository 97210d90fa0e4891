"""How large every parameter, its gradient and its step are: root mean squares, layer by layer."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model.params import flatten, unstack
from spanloom.optim.factoring import inner_dims

KINDS = ("weight", "gradient", "update")


def parameter_rms(specs: Any, weights: Any, gradients: Any, updates: Any) -> dict[str, dict[str, jax.Array]]:
    """The RMS of `weights`, `gradients` and `updates`, trees like `specs`, by kind (KINDS) and the parameter's name.

    float32; scalars, of stacked layers (layers,). Pure, for inside a jitted step.
    """
    axes = {name: inner_dims(spec.axes) for name, spec in flatten(specs).items()}

    def of(tree: Any) -> dict[str, jax.Array]:
        return {name: jnp.sqrt(jnp.mean(jnp.square(_float32(x)), axes[name])) for name, x in flatten(tree).items()}

    return {kind: of(tree) for kind, tree in zip(KINDS, (weights, gradients, updates), strict=True)}


def by_layer(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """What `parameter_rms` found, on the host: by name, one a layer ('encoder/layers_0/mlp/wo/kernel'), and kind."""
    flat = {kind: unstack(measured[kind]) for kind in KINDS}
    return {name: {kind: float(flat[kind][name]) for kind in flat} for name in flat["weight"]}


def _float32(x: Any) -> jax.Array:
    return x.astype(jnp.float32)
