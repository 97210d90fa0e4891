"""A column of a store over all its shards: rows, and one flat stream of tokens addressed by position."""

from collections.abc import Sequence

import numpy as np

from spanloom.pipeline.shards import Ragged


class Column:
    """Token ids of one column. Reads are from memory-mapped files; nothing is held but where each shard begins."""

    def __init__(self, shards: Sequence[Ragged], dtype: np.dtype):
        self.dtype = dtype
        self.shards = tuple(shards)
        self._first_token = _starts([len(shard.values) for shard in self.shards])
        self._first_row = _starts([len(shard.offsets) - 1 for shard in self.shards])

    @property
    def num_tokens(self) -> int:
        """Tokens in all rows."""
        return int(self._first_token[-1])

    @property
    def num_rows(self) -> int:
        """Rows."""
        return int(self._first_row[-1])

    def slice(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop of the flat stream, (stop - start,); a view unless it crosses from shard to shard."""
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens {start}..{stop} of a stream of {self.num_tokens}")
        if len(self.shards) == 1:
            return self.shards[0].values[start:stop]
        first = int(np.searchsorted(self._first_token, start, side="right")) - 1
        pieces: list[np.ndarray] = []
        for shard in range(first, len(self.shards)):
            begin = int(self._first_token[shard])
            if begin >= stop and pieces:
                break
            pieces.append(self.shards[shard].values[max(start - begin, 0) : stop - begin])
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, self.dtype)

    def windows(self, starts_N: np.ndarray, length: int) -> np.ndarray:
        """N windows of equal length of the flat stream, (N, length) of the column's dtype."""
        out_NxL = np.empty((len(starts_N), length), self.dtype)
        shards_N = np.searchsorted(self._first_token, starts_N, side="right") - 1
        for row, (start, shard) in enumerate(zip(starts_N.tolist(), shards_N.tolist(), strict=True)):
            local = start - int(self._first_token[shard])
            values = self.shards[shard].values
            if local + length <= len(values):
                out_NxL[row] = values[local : local + length]
            else:
                out_NxL[row] = self.slice(start, start + length)
        return out_NxL

    def row(self, index: int) -> np.ndarray:
        """Tokens of one row, a view."""
        shard = int(np.searchsorted(self._first_row, index, side="right")) - 1
        local = index - int(self._first_row[shard])
        offsets = self.shards[shard].offsets
        return self.shards[shard].values[offsets[local] : offsets[local + 1]]

    def lengths(self) -> np.ndarray:
        """Length of every row, (rows,) int64; computed on each call."""
        return np.concatenate([np.empty(0, np.int64), *(np.diff(shard.offsets) for shard in self.shards)])

    def row_starts(self, rows: np.ndarray) -> np.ndarray:
        """Where these rows start in the flat stream, int64; num_rows itself gives the end of the stream."""
        starts = np.empty(len(rows), np.int64)
        shards = np.searchsorted(self._first_row, rows, side="right") - 1
        for shard in np.unique(shards).tolist():
            chosen = shards == shard
            if shard == len(self.shards):
                starts[chosen] = self.num_tokens
            else:
                local = rows[chosen] - self._first_row[shard]
                starts[chosen] = self._first_token[shard] + self.shards[shard].offsets[local]
        return starts

    def starts_between(self, first: int, stop: int) -> np.ndarray:
        """Where rows first..stop start in the flat stream, (stop - first + 1,) int64; of the last row's end, too."""
        pieces = [np.empty(0, np.int64)]
        shard = int(np.searchsorted(self._first_row, first, side="right")) - 1
        while first < stop:
            last = min(stop, int(self._first_row[shard + 1]))
            begin = int(self._first_row[shard])
            pieces.append(self.shards[shard].offsets[first - begin : last - begin] + self._first_token[shard])
            first, shard = last, shard + 1
        return np.concatenate([*pieces, self.row_starts(np.array([stop]))])


def _starts(sizes: list[int]) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.asarray(sizes, np.int64))])
