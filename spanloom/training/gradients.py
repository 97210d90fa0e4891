"""Loss and gradients of a batch, whole or in microbatches that follow one another and need the memory of one.

Each microbatch has its rows' part of the whole batch's loss, whatever the normaliser: the sums are those of the batch,
up to rounding. (T5X normalises every microbatch by itself and sums, so that N of them give N times the gradient.)
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model import params as tree
from spanloom.model.loss import NORMALIZED, Metrics, loss_and_metrics, normalized_weights
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

Batch = dict[str, jax.Array]
Gradients = tuple[tuple[jax.Array, Metrics], Any]
"""((loss, sums), gradients), as `jax.value_and_grad` has them."""


def make_gradients(
    model: Model, loss: Loss, microbatches: int = 1, place: Placement = ANYWHERE
) -> Callable[[tree.T5, Batch, jax.Array | None], Gradients]:
    """`params, batch, dropout key -> (loss, sums), gradients`; the batch's rows divide evenly into the microbatches.

    Every so many-th row is in the same microbatch, so that each device finds rows of its own in all of them. Gradients
    have the parameters' types (sums over microbatches: float32), and lie as `place` has them for the update. Dropout is
    drawn anew for each microbatch, so that only without it their number changes nothing.
    """
    grad_fn, specs = jax.value_and_grad(loss_and_metrics, has_aux=True), tree.declare(model)

    def whole(params: tree.T5, batch: Batch, dropout_key: jax.Array | None) -> Gradients:
        value, grads = grad_fn(params, model, loss, batch, dropout_key, place)
        return value, place.for_update(grads, specs)

    def in_parts(params: tree.T5, batch: Batch, dropout_key: jax.Array | None) -> Gradients:
        batch = {**batch, NORMALIZED: normalized_weights(loss, batch)}
        parts = {name: rows.reshape(-1, microbatches, *rows.shape[1:]) for name, rows in batch.items()}

        def add(total: Gradients, number: jax.Array) -> tuple[Gradients, None]:
            part = {name: rows[:, number] for name, rows in parts.items()}
            key = None if dropout_key is None else jax.random.fold_in(dropout_key, number)
            return jax.tree.map(jnp.add, total, whole(params, part, key)), None

        shapes = jax.eval_shape(whole, params, {name: rows[:, 0] for name, rows in parts.items()}, dropout_key)
        # Sums are float32, whatever is added up.
        sums, grads = jax.tree.map(
            lambda leaf: jnp.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32)), shapes
        )
        return jax.lax.scan(add, (sums, place.for_update(grads, specs)), jnp.arange(microbatches))[0]

    return whole if microbatches == 1 else in_parts
