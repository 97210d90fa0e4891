"""Arrays that lie as ours do, layers stacked on axis 0, as our weights."""

import numpy as np

from spanloom.conversion.stored import Stored, taken
from spanloom.conversion.weights import Weight


def stacked_weight(name: str, array: Stored) -> Weight:
    """The array of one of our parameters, or of a slot of one, by the parameter's name."""
    stacked = "/layers/" in name

    def read(layer: int | None) -> np.ndarray:
        return (array.look or array.read)() if layer is None else taken(array, 0, layer)

    alone = not stacked or array.look is not None or (array.chunk is not None and array.chunk[0] <= 2)
    layers = array.shape[0] if stacked else None
    return Weight(array.shape, layers, array.dtype, read, lambda layer: (name, array.file), alone)
