"""Where the examples of a token stream begin and end."""

from typing import Protocol

import numpy as np

from spanloom.pipeline.columns import Column
from spanloom.settings.objectives import TokenStream

_TOGETHER = 64  # documents whose examples are counted together
_COUNTED = 1 << 18  # streams looked at at a time


class Chunks(Protocol):
    """A token stream cut into examples."""

    num_examples: int

    def locate(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, length) of each example in the stream, in tokens; two int64 arrays."""


class StreamChunks:
    """One long stream: example i is tokens i * raw_length onwards.

    The end of the stream is shorter than the rest. It is kept: it is masked by its own length and padded, so that an
    epoch sees every token once.
    """

    def __init__(self, num_tokens: int, raw_length: int):
        self.num_tokens = num_tokens
        self.raw_length = raw_length
        self.num_examples = -(-num_tokens // raw_length)

    def locate(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, length) of each example, in tokens."""
        starts = examples * self.raw_length
        return starts, np.minimum(self.num_tokens - starts, self.raw_length)


class BatchedChunks:
    """SeqIO's joining: every `documents` documents are one stream of their own, with a short last example.

    With one document each is by itself: SeqIO's `merge_examples_to_reduce_padding=False`. Of many short streams only
    every 64th is remembered, with the number of its first example: memory for a store of any size.
    """

    def __init__(self, column: Column, documents: int, raw_length: int):
        self.raw_length = raw_length
        self._column = column
        self._documents = documents
        self._num_streams = -(-column.num_rows // documents)
        self._together = max(1, _TOGETHER // documents)
        firsts = [np.zeros(1, np.int64)]
        counted = _COUNTED // self._together * self._together
        for begin in range(0, self._num_streams, counted):
            first, stop = begin * documents, min((begin + counted) * documents, column.num_rows)
            counts = self._counts(np.diff(self._every(column.starts_between(first, stop))))
            firsts.append(
                firsts[-1][-1] + np.cumsum(np.add.reduceat(counts, np.arange(0, len(counts), self._together)))
            )
        self._first_example = np.concatenate(firsts)
        self.num_examples = int(self._first_example[-1])

    def locate(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, length) of each example, in tokens."""
        groups_N = np.searchsorted(self._first_example, examples, side="right") - 1
        streams_NxG = np.minimum(groups_N[:, None] * self._together + np.arange(self._together + 1), self._num_streams)
        bounds_NxG = self._bounds(streams_NxG.ravel()).reshape(streams_NxG.shape)
        ends_NxG = np.cumsum(self._counts(np.diff(bounds_NxG, axis=1)), axis=1)
        within_N = examples - self._first_example[groups_N]
        stream_N = np.count_nonzero(ends_NxG <= within_N[:, None], axis=1)
        rows_N = np.arange(len(examples))
        before_N = np.where(stream_N > 0, ends_NxG[rows_N, stream_N - 1], 0)
        starts = bounds_NxG[rows_N, stream_N] + (within_N - before_N) * self.raw_length
        return starts, np.minimum(bounds_NxG[rows_N, stream_N + 1] - starts, self.raw_length)

    def _bounds(self, streams: np.ndarray) -> np.ndarray:
        """Where these streams begin, in tokens; the one after the last begins at the end."""
        return self._column.row_starts(np.minimum(streams * self._documents, self._column.num_rows))

    def _every(self, starts: np.ndarray) -> np.ndarray:
        """Of the starts of documents, and the end of the last, those at which streams begin or end."""
        if self._documents == 1:
            return starts
        return np.append(starts[: -1 : self._documents], starts[-1])

    def _counts(self, tokens: np.ndarray) -> np.ndarray:
        return -(-tokens // self.raw_length)


def chunks_of(column: Column, raw_length: int, objective: TokenStream) -> Chunks:
    """Cuts a token stream into examples of at most `raw_length` tokens, by whether documents share them."""
    documents = objective.concat_documents if objective.merge else 1
    if documents:
        return BatchedChunks(column, documents, raw_length)
    return StreamChunks(column.num_tokens, raw_length)
