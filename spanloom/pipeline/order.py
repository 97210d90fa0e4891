"""The endless order of training examples: epoch after epoch, each a global shuffle computed index by index."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from spanloom.tasks.randomness import hash64, key_of, permute_index, uniform_below


class Order(Protocol):
    """Which example is drawn i-th, and what decides its noise."""

    def draws(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(epoch, example) of draws first..first + count - 1; two (count,) int64 arrays."""

    def noise_keys(self, epochs: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """(N,) uint64 keys of the noise, by (seed, task, epoch, example): never by host, worker or position."""


@dataclass(frozen=True)
class TrainingOrder:
    """Which example is drawn i-th, as a pure function: no buffer, no state, any i at the same cost.

    Epoch e is draws e * num_examples to (e + 1) * num_examples - 1 and takes every example once, in the order that a
    permutation keyed by (seed, task, epoch) gives.
    """

    num_examples: int
    """Examples in one epoch, at least 1."""
    seed: int
    """Seed of the run."""
    task: str
    """Name of the task."""

    def draws(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(epoch, example) of draws first..first + count - 1; two (count,) int64 arrays."""
        draws = np.arange(count, dtype=np.int64) + first
        epochs, within = np.divmod(draws, self.num_examples)
        examples = np.empty(count, np.int64)
        for epoch in range(int(epochs[0]), int(epochs[-1]) + 1) if count else ():
            chosen = epochs == epoch
            examples[chosen] = permute_index(within[chosen], self.num_examples, self._epoch_key(epoch))
        return epochs, examples

    def noise_keys(self, epochs: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """(N,) uint64 keys of the noise, by (seed, task, epoch, example): never by host, worker or position."""
        return noise_keys(self.seed, self.task, epochs, examples)

    def _epoch_key(self, epoch: int) -> int:
        return int(hash64(self.seed, key_of(self.task), key_of("order"), epoch))


def noise_keys(seed: int, task: str, epochs: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """(N,) uint64 keys of training noise: by these four alone, whatever the order in which examples are drawn."""
    return hash64(seed, key_of(task), key_of("noise"), epochs, examples)


def heldout_noise_keys(examples: np.ndarray) -> np.ndarray:
    """(N,) uint64 keys of held-out noise: the same in every run, whatever its seed, so that losses can be compared."""
    return hash64(key_of("held-out noise"), examples)


def spread(numbers: np.ndarray, most: int, count: int) -> np.ndarray:
    """(N,) int64: an example of each of the parts `numbers`, where `count` examples in order are cut into `most` parts
    of one size; all of them, if there are as many.

    Which one of its part is drawn by the part's number, so that it is the same in every run. At equal distances a file
    whose kinds of rows take turns would show one kind only, as the first rows do of a file that is sorted.
    """
    starts = numbers * count // most
    sizes = (numbers + 1) * count // most - starts
    return starts + uniform_below(hash64(key_of("held-out spread"), numbers), sizes).astype(np.int64)
