"""Prefix LM: the encoder reads the beginning of a piece of text, the decoder writes the rest (Raffel et al. 2020).

The law is t5's `random_prefix_noise_mask`: a prefix of L tokens has uniformly from max(1, (1 - 2 density) (L - 1)) to
L - 1 of them, so that of long pieces the mean share written is the density.

Letters: N examples, L raw tokens, S input and T target positions.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from spanloom.settings.objectives import PrefixLM
from spanloom.tasks.block import Block, Int32Array, IntArray
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.randomness import UInt64Array, hash64, uniform_below
from spanloom.vocabularies.vocabulary import Vocabulary

_PREFIX = 1


def denoiser(objective: PrefixLM, vocabulary: Vocabulary) -> Denoiser:
    """Pieces of one token fewer than the inputs have room for, as in SeqIO. Raises ValueError for too short inputs."""
    raw_length = objective.inputs_length - 1
    if raw_length < 2:
        raise ValueError(
            f"inputs_length={objective.inputs_length} has no room for a prefix, a token to write and the end of "
            "sequence: use at least 3"
        )
    longest = raw_length - least_prefix(raw_length, objective.noise_density) + 1
    widths = (objective.inputs_length, longest)
    make = partial(prefix_block, density=objective.noise_density, widths=widths, vocabulary=vocabulary)
    longest_of = partial(longest_of_prefixes, density=objective.noise_density)
    return Denoiser(raw_length, *widths, num_sentinels=0, make=make, longest_of=longest_of)


def least_prefix(length: int, density: float) -> int:
    """Tokens of the shortest prefix of a piece: at least one token is read and one is written, where there are two."""
    share = 1 - 2 * Fraction(repr(float(density)))
    return min(length - 1, max(1, round(share * (length - 1))))


def longest_of_prefixes(length: int, density: float) -> tuple[int, int]:
    """Tokens of the longest inputs and targets that a piece of `length` tokens may give."""
    return max(length, 1), length - max(least_prefix(length, density), 0) + 1


def prefix_lengths(keys_N: UInt64Array, length: int, density: float) -> IntArray:
    """How many tokens of a piece of `length` are read: (N,) int64, all of the possible numbers equally likely."""
    least = least_prefix(length, density)
    return least + uniform_below(hash64(keys_N, _PREFIX), length - least).astype(np.int64)


def prefix_block(
    tokens_NxL: IntArray,
    keys_N: UInt64Array,
    *,
    density: float,
    widths: tuple[int, int],
    vocabulary: Vocabulary,
    first: Sequence[int] = (),
) -> Block:
    """`first` and the prefixes as inputs, the rests as targets, ends of sequence appended, padded to the widths."""
    num_rows, length = tokens_NxL.shape
    prefixes_N = prefix_lengths(keys_N, length, density) if length else np.zeros(num_rows, np.int64)
    ended_NxL1 = np.full((num_rows, length + 1), vocabulary.eos_id, np.int32)
    ended_NxL1[:, :length] = tokens_NxL
    inputs_NxS = _cut(ended_NxL1, np.zeros_like(prefixes_N), prefixes_N, widths[0] - len(first), vocabulary)
    inputs_NxS[np.arange(num_rows), prefixes_N] = vocabulary.eos_id
    marks_NxF = np.tile(np.array(first, np.int32), (num_rows, 1))
    targets_NxT = _cut(ended_NxL1, prefixes_N, length + 1 - prefixes_N, widths[1], vocabulary)
    inputs_NxS = np.concatenate([marks_NxF, inputs_NxS], axis=1)
    return Block(inputs_NxS, targets_NxT, len(first) + prefixes_N + 1, length + 1 - prefixes_N)


def _cut(
    rows_NxL: Int32Array, starts_N: IntArray, counts_N: IntArray, width: int, vocabulary: Vocabulary
) -> Int32Array:
    """`counts_N` tokens of each row from `starts_N` on, padded: (N, width) int32."""
    columns = np.arange(width)
    places_NxW = np.minimum(starts_N[:, None] + columns, rows_NxL.shape[1] - 1)
    cut_NxW: Int32Array = np.take_along_axis(rows_NxL, places_NxW, axis=1)
    cut_NxW[columns >= counts_N[:, None]] = vocabulary.pad_id
    return cut_NxW
