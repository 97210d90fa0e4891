"""Muon (Jordan 2024) for the matrices of the layers, Adam for all else: optax's parts, told which axes are whose."""

import math
from typing import Any

import jax
import optax
from optax.contrib import MuonDimensionNumbers
from optax.contrib import scale_by_muon as orthogonalized_momentum

from spanloom.optim.factoring import is_projection
from spanloom.settings.optimizer import Muon


def scale_by_muon(settings: Muon, specs: Any) -> optax.GradientTransformation:
    """Steps before decay and learning rate: orthogonalised momentum scaled to an RMS of `update_rms`, or Adam's.

    The momentum of each layer of a stack and of each kernel is orthogonalised by itself, in the gradient's type.
    """
    matrices = optax.chain(
        orthogonalized_momentum(
            ns_steps=settings.newton_schulz_steps,
            beta=settings.momentum,
            nesterov=settings.nesterov,
            weight_dimension_numbers=_last_two_axes,
        ),
        optax.stateless(lambda updates, _: jax.tree.map(lambda x: x * _scale(x, settings), updates)),
    )
    rest = optax.scale_by_adam(settings.beta1, settings.beta2, settings.epsilon)
    kinds = jax.tree.map(lambda spec: "muon" if is_projection(spec) else "adam", specs)
    return optax.partition({"muon": matrices, "adam": rest}, kinds)


def _scale(x: jax.Array, settings: Muon) -> float:
    """An orthogonal matrix of m x n has an RMS of 1 / sqrt(max(m, n)) (Liu et al. 2025)."""
    return settings.update_rms * math.sqrt(max(x.shape[-2:]))


def _last_two_axes(tree: Any) -> Any:
    """Every leaf's last two axes are the matrix; those before number the layers."""
    return jax.tree.map(lambda _: MuonDimensionNumbers(-2, -1), tree)
