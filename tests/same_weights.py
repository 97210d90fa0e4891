"""Whether parameters in memory are equal to the last bit, and what they say."""

from collections.abc import Mapping

import numpy as np

from spanloom.conversion import parity, streamed
from spanloom.conversion.weights import in_memory
from spanloom.model.params import T5
from spanloom.settings.model import Model


def different_weights(first: T5, second: T5) -> list[str]:
    return parity.Comparison(in_memory(first, "first"), in_memory(second, "second")).finish()


def log_probabilities(model: Model, params: T5, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    return streamed.log_probabilities(model, in_memory(params, "params"), batch)
