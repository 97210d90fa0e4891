"""Parameters, gradients and a few lines to step with, for the tests of all optimizers."""

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    axes: tuple[str, ...]


SPECS = {
    "kernel": Spec((6, 4), ("embed", "mlp")),
    "scale": Spec((5,), ("embed",)),
    "table": Spec((7, 4), ("vocab", "embed")),
    "bias": Spec((2, 4), ("heads", "relpos_buckets")),
}
"""One layer."""
Arrays = dict[str, jax.Array]


def stacked(layers: int) -> dict[str, Spec]:
    return {name: Spec((layers, *spec.shape), ("layers", *spec.axes)) for name, spec in SPECS.items()}


def made(seed: int, specs: Mapping[str, Spec] = SPECS, size: float = 1.0) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: jnp.asarray(rng.normal(size=spec.shape) * size, jnp.float32) for name, spec in specs.items()}


def stepped(optimizer: optax.GradientTransformation, params: Arrays, grads: list[Arrays], state=None):
    """The parameters after steps with these gradients, and the optimizer's state."""
    state = jax.jit(optimizer.init)(params) if state is None else state
    update = jax.jit(optimizer.update)
    for grad in grads:
        updates, state = update(grad, state, params)
        params = optax.apply_updates(params, updates)
    return params, state
