"""Where the model's arrays are to lie among devices: anywhere, unless a mesh says so (`spanloom.scale`)."""

from collections.abc import Callable
from typing import Any

import jax


class Placement:
    """Leaves every array where it is: one device, or whatever the compiler makes of many."""

    @property
    def device(self) -> Any:
        """One of the devices, which are all of a kind; None where this does not know them."""
        return None

    @property
    def batch_shards(self) -> int:
        """Parts into which a batch is divided."""
        return 1

    def part(self, axis: str, size: int) -> int:
        """How much of an axis of this name and size each device has of an activation."""
        return size

    def activations(self, x: jax.Array, *axes: str) -> jax.Array:
        """An activation whose axes have these names ("batch", "length", "embed", ...)."""
        return x

    def on_each_device(self, function: Callable[..., Any], *operands: tuple[jax.Array, tuple[str, ...]]) -> Any:
        """`function` of each device's own part of the operands, whose axes have these names. Its result has the axes
        of the first.
        """
        return function(*(x for x, _ in operands))

    def weights(self, params: Any, specs: Any) -> Any:
        """Parameters as they are used: whole but for what is divided along with the activations.

        `specs` is the tree of their `ParamSpec`; of one layer of a stack, the stack's.
        """
        return params

    def for_update(self, tree: Any, specs: Any) -> Any:
        """Gradients of parameters, as the optimizer is to have them."""
        return tree

    def stored(self, tree: Any, specs: Any) -> Any:
        """Parameters, or updates of them, as they are kept."""
        return tree


ANYWHERE = Placement()
"""One device, or no wishes."""
