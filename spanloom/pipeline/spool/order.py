"""The order in which examples of a stream are drawn: shard after shard, each shuffled, computed index by index."""

from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.order import noise_keys
from spanloom.pipeline.spool.spool import Spool
from spanloom.tasks.randomness import hash64, key_of, permute_index


@dataclass(frozen=True)
class SpoolOrder:
    """Which example of a stream is drawn i-th: a pure function of seed, task, i and how many examples shards hold.

    Draw i is one of the shard that example i is in; a permutation keyed by (seed, task, shard) says which. There is one
    epoch: a stream that began again gives examples that have numbers, and noise, of their own.
    """

    spool: Spool
    """Where the shards are, or are made."""
    seed: int
    """Seed of the run."""
    task: str
    """Name of the task."""

    def draws(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(epoch, example) of draws first..first + count - 1; two (count,) int64 arrays.

        Shards that are not there yet are made or awaited; raises what making them raises.
        """
        draws = np.arange(count, dtype=np.int64) + first
        examples = np.empty(count, np.int64)
        if count:
            shards = self.spool.shards_of(draws)
            for shard in np.unique(shards).tolist():
                chosen, begin = shards == shard, self.spool.index.mark(shard).examples
                size = self.spool.index.mark(shard + 1).examples - begin
                examples[chosen] = begin + permute_index(draws[chosen] - begin, size, self._key(shard))
        return np.zeros(count, np.int64), examples

    def noise_keys(self, epochs: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """(N,) uint64 keys of the noise, by (seed, task, epoch, example of the whole stream)."""
        return noise_keys(self.seed, self.task, epochs, examples)

    def _key(self, shard: int) -> int:
        return int(hash64(self.seed, key_of(self.task), key_of("order"), shard))
