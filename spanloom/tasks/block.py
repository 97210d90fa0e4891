"""A block of examples: what objectives make of text, before it becomes a batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spanloom.vocabularies.vocabulary import Vocabulary

Int32Array = npt.NDArray[np.int32]
IntArray = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Block:
    """Inputs and targets of N examples, padded to the widths of the task; they end as the objective has it."""

    inputs: Int32Array
    """(N, S) int32."""
    targets: Int32Array
    """(N, T) int32."""
    input_lengths: IntArray
    """(N,) real input tokens, end of sequence included. Ids never tell: 0 may stand inside a text."""
    target_lengths: IntArray
    """Likewise for the targets."""

    def put(self, rows_M: IntArray, block: "Block") -> None:
        """Makes M of its rows those of another block, whose widths may be smaller."""
        for name in ("inputs", "targets"):
            part = getattr(block, name)
            getattr(self, name)[rows_M, : part.shape[1]] = part
        self.input_lengths[rows_M] = block.input_lengths
        self.target_lengths[rows_M] = block.target_lengths


def empty_block(num_rows: int, widths: tuple[int, int]) -> Block:
    """A block of padding to put rows into; padding is 0."""
    inputs_NxS, targets_NxT = (np.zeros((num_rows, width), np.int32) for width in widths)
    return Block(inputs_NxS, targets_NxT, np.zeros(num_rows, np.int64), np.zeros(num_rows, np.int64))


def ended_rows(
    tokens: Int32Array, counts_N: IntArray, width: int, vocabulary: Vocabulary, first: Sequence[int] = ()
) -> Int32Array:
    """Rows of `first`, their own `counts_N` of the flat `tokens`, end of sequence and padding: (N, width) int32.

    Raises ValueError, with the longest, where rows are longer than `width`.
    """
    longest = len(first) + int(counts_N.max(initial=0)) + 1
    if longest > width:
        raise ValueError(f"a row takes {longest} tokens, but rows are {width} wide")
    padded_NxW = np.full((len(counts_N), width), vocabulary.pad_id, np.int32)
    padded_NxW[:, : len(first)] = first
    own_NxC = padded_NxW[:, len(first) :]
    if len(counts_N) and (counts_N == counts_N[0]).all():
        count = int(counts_N[0])
        own_NxC[:, :count] = tokens.reshape(len(counts_N), count)
        own_NxC[:, count] = vocabulary.eos_id
    else:
        own_NxC[np.arange(own_NxC.shape[1]) < counts_N[:, None]] = tokens
        own_NxC[np.arange(len(counts_N)), counts_N] = vocabulary.eos_id
    return padded_NxW
