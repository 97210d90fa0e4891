"""What one process is asked to do, all do at the same step: a number that every step adds up over the processes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from spanloom.scale.mesh import Layout


class Agreement:
    """Whether any process is asked to stop: the same answer in all. Every process calls it at the same places."""

    def __init__(self, layout: Layout) -> None:
        self._mesh = layout.mesh
        self._alone = len(layout.mesh.local_devices) == layout.mesh.size
        self._everywhere = NamedSharding(layout.mesh, PartitionSpec(layout.mesh.axis_names))
        self._largest = jax.jit(jnp.max, out_shardings=layout.replicated)
        self._pending: list[jax.Array] = []

    def asked(self, here: bool) -> bool:
        """Whether any was, once a step: of several processes as of the step before, so that no device waits for it."""
        if self._alone:
            return here
        self._pending.append(self._any(here))
        return len(self._pending) > 1 and bool(jax.device_get(self._pending.pop(0)))

    def asked_at_last(self, here: bool) -> bool:
        """Whether any is until now."""
        if self._alone:
            return here
        return any(bool(jax.device_get(flag)) for flag in (*self._pending, self._any(here)))

    def _any(self, here: bool) -> jax.Array:
        mine = [jax.device_put(np.full(1, here, np.int32), device) for device in self._mesh.local_devices]
        flags = jax.make_array_from_single_device_arrays((self._mesh.size,), self._everywhere, mine)
        found: jax.Array = self._largest(flags)
        return found
