"""Rematerialisation: what a layer keeps for its backward pass, and what is computed again there (Chen et al. 2016)."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from spanloom.settings.model import Model

PROJECTIONS, MIXED, UP = "projections", "mixed", "up"
"""Names of what may be kept, given where it is made (`jax.ad_checkpoint.checkpoint_name`): queries, keys and values;
attention's mixed values, with its maxima and sums; the last of the products that the feed-forward layer begins with."""

KEPT: dict[str, tuple[str, ...]] = {
    "cheap": (PROJECTIONS, MIXED, UP),
    "feed_forward": (PROJECTIONS, MIXED),
    "full": (),
}
"""What each policy keeps beside the layer's input; "none" is no policy: XLA keeps what it likes."""


def rematerialized(layer: Callable[..., jax.Array], config: Model) -> Callable[..., Any]:
    """The layer, with `config.remat`'s choice of what it keeps. Value and gradient are the same, up to rounding."""
    if config.remat == "none":
        return layer
    policy = jax.checkpoint_policies.save_only_these_names(*KEPT[config.remat])
    # A scan's body cannot be merged with its backward pass anyway; unrolled layers could, and would keep everything.
    return jax.checkpoint(layer, policy=policy, prevent_cse=not config.scan_layers)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def taken_again(number: int, stacked: Any, own: Any) -> Any:
    """The parameters of layer `number`: `own`, whose gradient is theirs, but taken out of the stack of all layers.

    So that they are taken out once more where the layer is computed again: XLA would keep them all in bfloat16 from the
    forward pass on, a quarter of the temporaries of T5 1.1 large on a TPU.
    """
    return jax.tree.map(lambda leaf: jax.lax.index_in_dim(leaf, number, keepdims=False), stacked)


def _taken_forward(number: int, stacked: Any, own: Any) -> tuple[Any, None]:
    return taken_again(number, stacked, own), None


def _taken_backward(number: int, _: None, gradient: Any) -> tuple[None, Any]:
    return None, gradient


taken_again.defvjp(_taken_forward, _taken_backward)
