"""What a layer keeps for its backward pass, and what is computed again there (Chen et al. 2016); which gradients the
backward pass has before it goes on.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

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
    """The layer, with `config.remat`'s choice of what it keeps. Value and gradient are the same, up to rounding.

    `layer` is a scan's body, whose backward pass is apart from it anyway.
    """
    if config.remat == "none":
        return layer
    return jax.checkpoint(layer, policy=_policy(config), prevent_cse=False)


def rematerialized_in_place(layer: Callable[..., jax.Array], config: Model, stacked: Any) -> Callable[..., jax.Array]:
    """The same for `layer(x, its parameters, its number)` that stands beside others in one program.

    Parameters are taken out of `stacked`, those of all layers, once more where the layer is computed again: XLA would
    keep them all in bfloat16 from the forward pass on, a sixth of the temporaries of T5 1.1 base on a TPU v4.
    """
    if config.remat == "none":
        return layer
    again = jax.checkpoint(
        lambda x, own, stacked, number: layer(x, taken_again(own, stacked, number), number),
        policy=_policy(config),
        # XLA would merge what is computed again with what was, unless it cannot see that x and the number are the same.
        prevent_cse=(True, False, False, True),
    )
    return lambda x, own, number: again(x, own, jax.lax.stop_gradient(stacked), jnp.int32(number))


def _policy(config: Model) -> Callable[..., bool]:
    return jax.checkpoint_policies.save_only_these_names(*KEPT[config.remat])


@jax.custom_vjp
def taken_again(own: Any, stacked: Any, number: jax.Array) -> Any:
    """The parameters of layer `number`, taken out of the stack of all; they and their gradient are those of `own`."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, number, keepdims=False), stacked)


def _taken_forward(own: Any, stacked: Any, number: jax.Array) -> tuple[Any, None]:
    return taken_again(own, stacked, number), None


def _taken_backward(_: None, gradient: Any) -> tuple[Any, None, None]:
    return gradient, None, None


taken_again.defvjp(_taken_forward, _taken_backward)


@jax.custom_vjp
def in_turn(x: jax.Array, following: Any) -> tuple[jax.Array, Any]:
    """A layer's input and the parameters of the layer after it, unchanged.

    The backward pass goes on below this layer only when it has the gradient of those parameters. Devices add gradients
    up beside the backward pass, and XLA would have them wait for one another, half a model's of them at a time, and
    with them the activations that they are made of: T5 1.1 small on v5e took 3.00 GiB of temporaries for 2.20.
    """
    return x, following


in_turn.defvjp(
    lambda x, following: ((x, following), None), lambda _, gradients: jax.lax.optimization_barrier(gradients)
)
