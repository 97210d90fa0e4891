"""What one process is asked to do, all do at the same step: a number that every step adds up over the processes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from spanloom.scale.mesh import Layout


def agree(layout: Layout) -> Callable[[bool], bool]:
    """A function that every process calls once a step, with whether it is asked to stop: whether any was.

    Of several processes the answer is that of the call before, so that no device waits for it, and the same in all.
    """
    if len(layout.mesh.local_devices) == layout.mesh.size:
        return bool
    everywhere = NamedSharding(layout.mesh, PartitionSpec(layout.mesh.axis_names))
    largest = jax.jit(jnp.max, out_shardings=layout.replicated)
    pending: list[jax.Array] = []

    def asked(here: bool) -> bool:
        mine = [jax.device_put(np.full(1, here, np.int32), device) for device in layout.mesh.local_devices]
        flags = jax.make_array_from_single_device_arrays((layout.mesh.size,), everywhere, mine)
        pending.append(largest(flags))
        return len(pending) > 1 and bool(jax.device_get(pending.pop(0)))

    return asked
