"""The training step: the whole update on one screen.

Legend of shapes: B sequences in a batch, S encoder positions, T decoder positions.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from spanloom.model.params import declare
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.optim.clipping import global_norm
from spanloom.optim.parameter_rms import parameter_rms
from spanloom.optim.rounding import as_used
from spanloom.settings.model import Model
from spanloom.settings.run import Loss
from spanloom.training.compiler import compiler_options
from spanloom.training.gradients import make_gradients
from spanloom.training.state import TrainState

Batch = dict[str, jax.Array]  # T5X's field names; (B, S) and (B, T), int32
Metrics = dict[str, Any]  # float32 scalars, left on the device


def make_train_step(
    model: Model,
    loss: Loss,
    optimizer: optax.GradientTransformation,
    learning_rate: Callable[[jax.Array], jax.Array],
    seed: int = 0,
    microbatches: int = 1,
    skip_nonfinite: bool = False,
    parameters: bool = False,
    place: Placement = ANYWHERE,
    shardings: Any = None,
) -> jax.stages.Wrapped:
    """The jitted update `state, batch -> state, metrics`; the state passed in is donated, so it is gone afterwards.

    The metrics describe the step from the weights before its update: loss (what is minimised), cross_entropy (with
    label smoothing that against the smoothed targets, less their entropy) and z_loss per real target token, accuracy,
    input_tokens and target_tokens (real ones), learning_rate and grad_norm (before clipping). With `skip_nonfinite` a
    step whose gradient norm is not finite changes nothing but the step counter, and `skipped` is 1. With `parameters`
    there are those of `spanloom.optim.parameter_rms`, too, under that name. `place` says where arrays lie among several
    devices, and `shardings` (of state and metrics) where they come out.
    """
    gradients, specs = make_gradients(model, loss, microbatches, place), declare(model)

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        dropout_key = jax.random.fold_in(jax.random.key(seed), state.step) if model.dropout else None
        weights = as_used(state.params, specs)
        (value, sums), grads = gradients(weights, batch, dropout_key)
        norm = global_norm(grads)

        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        # Gathered as updates: whole new weights cannot arrive where the old ones lie.
        params: Any = optax.apply_updates(state.params, place.stored(updates, specs))
        if skip_nonfinite:
            after, before = (params, opt_state), (state.params, state.opt_state)
            params, opt_state = jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(norm), new, old), after, before)

        metrics = {**_described(value, sums, batch), "learning_rate": learning_rate(state.step), "grad_norm": norm}
        if skip_nonfinite:
            metrics["skipped"] = (~jnp.isfinite(norm)).astype(jnp.float32)
        if parameters:
            metrics["parameters"] = parameter_rms(specs, weights, grads, updates)
        return TrainState(state.step + 1, params, opt_state), metrics

    return jax.jit(train_step, donate_argnames="state", out_shardings=shardings, compiler_options=compiler_options())


def _described(value: jax.Array, sums: Metrics, batch: Batch) -> Metrics:
    """What a step says of its loss."""
    tokens = jnp.maximum(sums["weight_sum"], 1)
    return {
        "loss": value,
        "cross_entropy": sums["cross_entropy_sum"] / tokens,
        "z_loss": sums["z_loss_sum"] / tokens,
        "accuracy": sums["correct_sum"] / tokens,
        "input_tokens": jnp.sum(batch["encoder_input_tokens"] > 0).astype(jnp.float32),
        "target_tokens": sums["weight_sum"],
    }
