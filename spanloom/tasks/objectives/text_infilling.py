"""Text infilling: spans become one mask each, some masks stand for nothing, all text is written (Lewis et al. 2020).

BART draws span lengths from a Poisson law until enough tokens are masked. Here, as in span corruption, the numbers n of
masked tokens and K of spans follow from the length of the text, so that lengths are known: K Poisson numbers whose sum
is n are how n balls fall into K boxes. Spans stand in different gaps between the tokens that stay, all choices of gaps
equally likely, so that no two masks are neighbours.

Letters: N examples, L raw tokens, K spans.
"""

from functools import partial

import numpy as np

from spanloom.settings.objectives import TextInfilling
from spanloom.tasks.block import Block, Int32Array, IntArray, ended_rows
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.randomness import UInt64Array, hash64, stream64, uniform_below
from spanloom.tasks.span_corruption import random_compositions
from spanloom.tasks.span_lengths import noise_counts, span_lengths
from spanloom.vocabularies.vocabulary import Vocabulary

_LENGTHS, _GAPS = 1, 2


def denoiser(objective: TextInfilling, vocabulary: Vocabulary) -> Denoiser:
    """Pieces whose inputs fill their width; targets are the whole piece.

    Raises ValueError for settings that make no sense and for a vocabulary without sentinels.
    """
    if not vocabulary.sentinels:
        raise ValueError("text infilling needs a mask, the first sentinel, but the vocabulary has no sentinels")
    lengths = span_lengths(objective.inputs_length, objective.noise_density, objective.mean_span_length)
    widths = (objective.inputs_length, lengths.raw_length + 1)
    make = partial(_block, objective=objective, widths=widths, vocabulary=vocabulary)
    longest_of = partial(_longest_of, objective=objective)
    return Denoiser(lengths.raw_length, *widths, num_sentinels=1, make=make, longest_of=longest_of)


def span_lengths_block(keys_N: UInt64Array, tokens: int, spans: int) -> IntArray:
    """Lengths of `spans` Poisson spans that mask `tokens` tokens in all: (N, spans) int64, zeros among them."""
    num_rows = len(keys_N)
    boxes_NxM = uniform_below(stream64(hash64(keys_N, _LENGTHS), tokens), spans).astype(np.int64)
    boxes_NxM += np.arange(num_rows)[:, None] * spans
    return np.bincount(boxes_NxM.ravel(), minlength=num_rows * spans).reshape(num_rows, spans)


def masked_spans(keys_N: UInt64Array, length: int, objective: TextInfilling) -> tuple[IntArray, IntArray]:
    """(where it starts, how long it is) of every masked span of pieces of `length` tokens: two (N, K) int64 arrays."""
    counts = noise_counts(length, objective.noise_density, objective.mean_span_length)
    kept_NxK1, lengths_NxK = _runs(keys_N, length, counts)
    starts_NxK = np.cumsum(kept_NxK1[:, :-1], axis=1) + np.cumsum(lengths_NxK, axis=1) - lengths_NxK
    return starts_NxK, lengths_NxK


def _longest_of(length: int, objective: TextInfilling) -> tuple[int, int]:
    noise, spans = noise_counts(length, objective.noise_density, objective.mean_span_length)
    return length - noise + spans + 1, length + 1


def _block(
    tokens_NxL: IntArray,
    keys_N: UInt64Array,
    *,
    objective: TextInfilling,
    widths: tuple[int, int],
    vocabulary: Vocabulary,
) -> Block:
    num_rows, length = tokens_NxL.shape
    tokens = tokens_NxL.astype(np.int32)
    inputs_NxI = _masked(
        tokens, keys_N, noise_counts(length, objective.noise_density, objective.mean_span_length), vocabulary
    )
    counts_N = np.full(num_rows, inputs_NxI.shape[1])
    lengths_N = np.full(num_rows, length)
    return Block(
        ended_rows(inputs_NxI.ravel(), counts_N, widths[0], vocabulary),
        ended_rows(tokens.ravel(), lengths_N, widths[1], vocabulary),
        counts_N + 1,
        lengths_N + 1,
    )


def _runs(keys_N: UInt64Array, length: int, counts: tuple[int, int]) -> tuple[IntArray, IntArray]:
    """Tokens that stay around the K spans of each piece (N, K + 1), and tokens of the spans (N, K)."""
    noise, spans = counts
    if spans == 0:
        return np.full((len(keys_N), 1), length), np.zeros((len(keys_N), 0), np.int64)
    kept_NxK1 = random_compositions(hash64(keys_N, _GAPS), length - noise + 2, spans + 1)
    kept_NxK1[:, [0, -1]] -= 1  # the text may begin and end with a span
    return kept_NxK1, span_lengths_block(keys_N, noise, spans)


def _masked(tokens_NxL: Int32Array, keys_N: UInt64Array, counts: tuple[int, int], vocabulary: Vocabulary) -> Int32Array:
    """Each row with its spans replaced: (N, L - n + K)."""
    num_rows, length = tokens_NxL.shape
    noise, spans = counts
    if spans == 0:
        return tokens_NxL
    kept_NxK1, lengths_NxK = _runs(keys_N, length, counts)
    runs_NxK1x2 = np.zeros((num_rows, spans + 1, 2), np.intp)
    runs_NxK1x2[:, :, 0] = kept_NxK1
    runs_NxK1x2[:, :-1, 1] = lengths_NxK
    stays = np.tile(np.array([True, False]), num_rows * (spans + 1))
    kept = tokens_NxL.ravel()[np.repeat(stays, runs_NxK1x2.ravel())]
    is_mask = np.zeros((num_rows, length - noise + spans), np.bool_)
    places_NxK = np.cumsum(kept_NxK1[:, :-1], axis=1) + np.arange(spans)
    np.put_along_axis(is_mask, places_NxK, True, axis=1)
    inputs_NxI = np.full(is_mask.shape, vocabulary.sentinels[0], np.int32)
    inputs_NxI[~is_mask] = kept
    return inputs_NxI
