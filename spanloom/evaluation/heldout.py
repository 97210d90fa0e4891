"""Held-out loss: cross-entropy without z-loss or label smoothing, per target token and per token of text alone."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from spanloom.model.loss import loss_weights, token_losses
from spanloom.model.placement import ANYWHERE, Placement
from spanloom.pipeline.batches import Batch
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.examples import DataError
from spanloom.settings.model import Model
from spanloom.settings.run import Evaluation, Loss
from spanloom.vocabularies.vocabulary import Vocabulary

Sums = dict[str, jax.Array]
HeldoutStep = Callable[[Any, Mapping[str, Any]], Sums]
Put = Callable[[dict[str, Any]], Any]


class NoTargetsError(DataError):
    """Held-out batches without any target token: there is nothing to measure."""


def make_heldout_step(
    model: Model, vocabulary: Vocabulary, place: Placement = ANYWHERE, sharding: Any = None
) -> jax.stages.Wrapped:
    """The jitted function `params, batch -> sums` (float32 scalars), without dropout.

    `tokens` counts the real targets, `text_tokens` those that are neither sentinel nor end of sequence. `place` says
    where arrays lie among several devices, `sharding` where the sums come out.
    """
    marks = jnp.asarray(sorted({vocabulary.eos_id, *vocabulary.sentinels}), jnp.int32)
    return jax.jit(functools.partial(_sums, model, place, marks), out_shardings=sharding)


def _sums(model: Model, place: Placement, marks: jax.Array, params: Any, batch: Mapping[str, Any]) -> Sums:
    tokens = token_losses(params, model, Loss(z_loss=0.0), dict(batch), place=place)
    weights_BxT = loss_weights(batch)
    text_BxT = weights_BxT * ~jnp.isin(batch["decoder_target_tokens"], marks)
    return {
        "loss": jnp.sum(tokens.cross_entropy * weights_BxT),
        "text_loss": jnp.sum(tokens.cross_entropy * text_BxT),
        "correct": jnp.sum(tokens.correct * weights_BxT),
        "tokens": jnp.sum(weights_BxT),
        "text_tokens": jnp.sum(text_BxT),
    }


def heldout_by_task(
    step: HeldoutStep,
    params: Any,
    parts: Mapping[str, Dataset],
    settings: Evaluation,
    until: Callable[[Iterable[Batch]], Iterable[Batch]],
    put: Put = jax.device_put,
) -> dict[str, dict[str, float]]:
    """`heldout_metrics` of each task's part, by name, on the batches that a run's settings, resolved, ask for.

    `until` is given the batches, and may end them by an exception; `put` brings each to the devices.
    """
    assert settings.batch_size is not None
    found = {}
    for task, part in parts.items():
        batches = until(part.eval_batches(settings.batch_size, settings.max_batches))
        try:
            found[task] = heldout_metrics(step, params, batches, put)
        except NoTargetsError:
            raise NoTargetsError(
                f"the held-out batches of task {task!r} hold no target tokens: do its preprocessors leave all of them "
                "out, or make empty targets? More eval.max_batches look at more of them"
            ) from None
    return found


def heldout_metrics(
    step: HeldoutStep, params: Any, batches: Iterable[Mapping[str, Any]], put: Put = jax.device_put
) -> dict[str, float]:
    """Losses in nats over all `batches`, which have one shape; sums are added in float64.

    heldout_loss and heldout_accuracy are per target token, heldout_text_loss per token of text alone. Raises
    NoTargetsError if the batches hold no target.
    """
    totals = dict.fromkeys(("loss", "text_loss", "correct", "tokens", "text_tokens"), 0.0)
    waiting: Sums | None = None  # fetched one batch late, so that the device never waits
    for batch in batches:
        before, waiting = waiting, step(params, put(dict(batch)))
        _add(totals, before)
    _add(totals, waiting)
    if not totals["tokens"]:
        raise NoTargetsError("the held-out batches hold no target tokens")
    return {
        "heldout_loss": totals["loss"] / totals["tokens"],
        "heldout_text_loss": totals["text_loss"] / max(totals["text_tokens"], 1.0),
        "heldout_accuracy": totals["correct"] / totals["tokens"],
        "heldout_tokens": totals["tokens"],
        "heldout_text_tokens": totals["text_tokens"],
    }


def _add(totals: dict[str, float], sums: Sums | None) -> None:
    for name, value in jax.device_get(sums or {}).items():
        totals[name] += float(value)
