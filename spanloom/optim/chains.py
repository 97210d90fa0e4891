"""Optimizers that are chains of optax's parts: AdamW, AdamW with steps scaled by RMS, Lion and Muon."""

from typing import Any, assert_never

import jax
import jax.numpy as jnp
import optax

from spanloom.optim.clipping import clip_by_global_norm
from spanloom.optim.decay import decay_mask
from spanloom.optim.factoring import Spec, inner_dims
from spanloom.optim.muon import scale_by_muon
from spanloom.optim.schedules import Curve
from spanloom.settings.optimizer import AdamW, AdamWRMS, Lion, Muon


def chain(settings: AdamW | AdamWRMS | Lion | Muon, learning_rate: Curve, specs: Any) -> optax.GradientTransformation:
    """The optimizer for the parameters that `specs` declares.

    The gradient is clipped to a global norm first; decay is multiplied by the learning rate. `AdamWRMS` also scales the
    step, but not the decay, by the parameter's RMS.
    """
    # Clipping has its place with and without, so that a run may go on with another limit or none.
    limit = settings.global_norm_clip
    return optax.chain(
        optax.identity() if limit is None else clip_by_global_norm(limit),
        *_scaling(settings, specs),
        optax.add_decayed_weights(settings.weight_decay, decay_mask(settings.decayed, specs)),
        optax.scale_by_learning_rate(learning_rate),
    )


def _scaling(settings: AdamW | AdamWRMS | Lion | Muon, specs: Any) -> list[optax.GradientTransformation]:
    """What makes a step of a gradient."""
    match settings:
        case AdamW():
            return [optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)]
        case AdamWRMS():
            adam = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
            return [adam, scale_by_parameter_rms(settings.min_scale, specs)]
        case Lion():
            return [optax.scale_by_lion(settings.beta1, settings.beta2)]
        case Muon():
            return [scale_by_muon(settings, specs)]
        case _:
            assert_never(settings)


def scale_by_parameter_rms(min_scale: float, specs: Any) -> optax.GradientTransformation:
    """Multiply each parameter's update by max(min_scale, RMS), layer by layer (nanoT5's AdamWScale; no state)."""

    def scale(spec: Spec, update: jax.Array, param: jax.Array) -> jax.Array:
        rms = jnp.sqrt(jnp.mean(param * param, inner_dims(spec.axes), keepdims=True))
        return update * jnp.maximum(min_scale, rms)

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        if params is None:
            raise ValueError("steps scaled by the parameters' RMS need them: call update(grads, state, params)")
        return jax.tree.map(scale, specs, updates, params), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
