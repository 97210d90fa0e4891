"""Where the examples of a token stream begin and end."""

from typing import Protocol

import numpy as np

from spanloom.pipeline.columns import Column
from spanloom.settings.objectives import TokenStream


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

    With one document each is by itself: SeqIO's `merge_examples_to_reduce_padding=False`.
    """

    def __init__(self, column: Column, documents: int, raw_length: int):
        self.raw_length = raw_length
        rows = np.arange(0, column.num_rows + documents, documents)
        self._bounds = column.row_starts(np.minimum(rows, column.num_rows))
        counts = -(-np.diff(self._bounds) // raw_length)
        self._first_example = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self.num_examples = int(self._first_example[-1])

    def locate(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(start, length) of each example, in tokens."""
        streams = np.searchsorted(self._first_example, examples, side="right") - 1
        starts = self._bounds[streams] + (examples - self._first_example[streams]) * self.raw_length
        return starts, np.minimum(self._bounds[streams + 1] - starts, self.raw_length)


def chunks_of(column: Column, raw_length: int, objective: TokenStream) -> Chunks:
    """Cuts a token stream into examples of at most `raw_length` tokens, by whether documents share them."""
    documents = objective.concat_documents if objective.merge else 1
    if documents:
        return BatchedChunks(column, documents, raw_length)
    return StreamChunks(column.num_tokens, raw_length)
