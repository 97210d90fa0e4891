"""Examples of a stream by their number in the whole of it, made shard by shard."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from spanloom.pipeline.columns import Column
from spanloom.pipeline.row_encoder import RowEncoder
from spanloom.pipeline.row_examples import end_ids
from spanloom.pipeline.spool.spool import Spool
from spanloom.settings.objectives import Supervised
from spanloom.tasks.block import Block, empty_block
from spanloom.tasks.objectives.build import denoiser_of


class SpoolColumn:
    """A column over all shards there were, are and will be: one flat stream of tokens."""

    def __init__(self, spool: Spool, name: str):
        self._spool = spool
        self._name = name

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop of the stream, of one shard: a view."""
        if start == stop:  # of a shard's last row they begin in the next one, which nobody needs to make for them
            return np.empty(0, self._spool.index.dtypes[self._name])
        shard = self._spool.index.shard_at_token(self._name, start)
        first = self.starts(shard)
        return self._column(shard).slice(start - first, stop - first)

    def row(self, index: int) -> np.ndarray:
        """Tokens of one row, a view; of columns whose rows are examples."""
        shard = int(self._spool.shards_of(np.array([index]))[0])
        return self._column(shard).row(index - self._spool.index.mark(shard).examples)

    def starts(self, shard: int) -> int:
        """Tokens in the shards before one."""
        return self._spool.index.mark(shard).tokens.get(self._name, 0)

    def _column(self, shard: int) -> Column:
        return self._spool.store(shard).columns[self._name]


class SpoolExamples:
    """Numbered examples of a stream; each shard makes its own, see `spanloom.pipeline.task_examples`."""

    def __init__(self, spool: Spool):
        self.spool = spool
        """Where the shards are, or are made."""
        task, vocabulary = spool.task, spool.vocabulary
        self.eos_id = vocabulary.eos_id
        self.columns: tuple[SpoolColumn, SpoolColumn] | None = None
        if isinstance(task.objective, Supervised):
            self.inputs_length = task.objective.inputs_length or 0
            self.targets_length = task.objective.targets_length or 0
            encoder = RowEncoder(task, vocabulary)
            ends = (end.tolist() for end in end_ids(encoder).values())
            if not encoder.chain.read and all(end == [self.eos_id] for end in ends):
                self.columns = SpoolColumn(spool, "inputs"), SpoolColumn(spool, "targets")
        else:
            denoiser = denoiser_of(task.objective, vocabulary)
            self.inputs_length, self.targets_length = denoiser.inputs_length, denoiser.targets_length

    def __reduce__(self) -> tuple[Any, ...]:
        return SpoolExamples, (self.spool,)

    @property
    def num_examples(self) -> int:
        """Those that were made so far."""
        return self.spool.index.last.examples

    def make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Block:
        """Inputs and targets; row i depends on examples_N[i] and keys_N[i] alone."""
        made = empty_block(len(examples_N), (self.inputs_length, self.targets_length))
        for shard, rows_M, own_M in self._by_shard(examples_N):
            made.put(rows_M, self.spool.examples(shard).make(own_M, keys_N[rows_M]))
        return made

    def locate(self, examples_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Most tokens of inputs and targets, and where these begin in the columns if there are any, (N, 2) int64."""
        lengths_Nx2, starts_Nx2 = np.zeros((2, len(examples_N), 2), np.int64)
        for shard, rows_M, own_M in self._by_shard(examples_N):
            lengths_Nx2[rows_M], starts = self.spool.examples(shard).locate(own_M)
            before = [column.starts(shard) for column in self.columns] if self.columns else [0, 0]
            starts_Nx2[rows_M] = starts + before
        return lengths_Nx2, starts_Nx2

    def raw(self, example: int) -> np.ndarray:
        """The example's own tokens before noise, (n,)."""
        ((shard, _, own),) = self._by_shard(np.array([example]))
        return self.spool.examples(shard).raw(int(own[0]))

    def _by_shard(self, examples_N: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(shard, which of the N are in it, their numbers there)."""
        shards_N = self.spool.shards_of(examples_N)
        for shard in np.unique(shards_N).tolist():
            rows_M = np.flatnonzero(shards_N == shard)
            yield shard, rows_M, examples_N[rows_M] - self.spool.index.mark(shard).examples
