"""Span corruption (Raffel et al. 2020), a block of examples at a time.

The law of the masks is SeqIO's: the masked tokens, and the tokens that stay, are each split into as many spans as
there are masked ones, uniformly over all ways to do so (compositions) and independently; spans that stay and masked
ones take turns, the first stays. So the first token is never masked and the last one always is.

With `random_roll` a mask is turned by a random number of tokens, and a span that then stands at both ends is two: each
has a sentinel of its own, so that the k-th sentinel marks the k-th masked span on both sides. SeqIO's does not.

Letters: N examples, L raw tokens, K spans, S input and T target positions.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from spanloom.settings.objectives import SpanCorruption
from spanloom.tasks.block import Block, Int32Array, IntArray, ended_rows
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.randomness import UInt64Array, hash64, stream64, uniform_below
from spanloom.tasks.span_lengths import SpanLengths, check_sentinels, noise_counts, span_lengths
from spanloom.vocabularies.bytes import ByteVocabulary
from spanloom.vocabularies.vocabulary import Vocabulary

BoolArray = npt.NDArray[np.bool_]

_NOISE, _KEPT, _ROLL = 1, 2, 3  # what an example draws comes from streams of its own


def denoiser(objective: SpanCorruption, vocabulary: Vocabulary) -> Denoiser:
    """Pieces whose inputs fill their width. Raises ValueError as `lengths_of`."""
    lengths = lengths_of(objective, vocabulary)
    make = partial(corrupt_block, objective=objective, vocabulary=vocabulary)
    longest_of = partial(
        longest_of_spans,
        density=objective.noise_density,
        mean_span_length=objective.mean_span_length,
        roll=int(objective.random_roll),
    )
    widths = lengths.inputs_length, lengths.targets_length
    return Denoiser(lengths.raw_length, *widths, num_sentinels=lengths.num_spans, make=make, longest_of=longest_of)


def lengths_of(objective: SpanCorruption, vocabulary: Vocabulary) -> SpanLengths:
    """The lengths of an objective, checked against the sentinels of the vocabulary: call it when a task is built.

    Raises ValueError, with the reason and the fix, where no mask exists or the sentinels do not suffice.
    """
    extra = int(objective.random_roll)  # the roll may make two spans of one, or end the text unmasked
    lengths = span_lengths(objective.inputs_length - extra, objective.noise_density, objective.mean_span_length)
    lengths = replace(
        lengths,
        inputs_length=objective.inputs_length,
        targets_length=lengths.targets_length + extra,
        num_spans=lengths.num_spans + extra,
    )
    if isinstance(vocabulary, ByteVocabulary) and vocabulary.settings.sentinels == "google":
        accept = f"accept bytes that text can hold: --task.vocabulary.google-sentinels {lengths.num_spans}"
        check_sentinels(lengths, len(vocabulary.sentinels), accept)
    else:
        check_sentinels(lengths, len(vocabulary.sentinels))
    return lengths


def longest_of_spans(length: int, density: float, mean_span_length: float, roll: int) -> tuple[int, int]:
    """Tokens of the longest inputs and targets that a piece of `length` tokens may give; `roll`: 1 with, 0 without."""
    noise, spans = noise_counts(length, density, mean_span_length)
    marks = spans + roll
    return length - noise + marks + 1, noise + max(marks, 1) + 1  # what ends unmasked ends in a sentinel


def corrupt_block(
    tokens_NxL: IntArray, keys_N: UInt64Array, objective: SpanCorruption, vocabulary: Vocabulary
) -> Block:
    """Make inputs and targets of equally long pieces of text.

    End of sequence is appended, then padding up to the lengths of the objective: none at full raw length (at density
    0.5 sometimes one token, and up to two with `random_roll`), some for shorter pieces. Row i depends on its own tokens
    and `keys_N[i]` (uint64) alone.
    Raises ValueError for pieces longer than the raw length, too few keys, and settings that `lengths_of` refuses.
    """
    lengths = lengths_of(objective, vocabulary)
    num_rows, length = tokens_NxL.shape
    if np.shape(keys_N) != (num_rows,):
        raise ValueError(f"{num_rows} rows need {num_rows} keys, not keys of shape {np.shape(keys_N)}")
    if length > lengths.raw_length:
        raise ValueError(
            f"a piece of {length} tokens exceeds the raw length {lengths.raw_length} of inputs_length="
            f"{objective.inputs_length}: cut the text into pieces of {lengths.raw_length}"
        )
    mask_NxL = noise_mask_block(keys_N, length, objective.noise_density, objective.mean_span_length)
    if objective.random_roll:
        mask_NxL = rolled(mask_NxL, keys_N)
    return masked_block(tokens_NxL, mask_NxL, (lengths.inputs_length, lengths.targets_length), vocabulary)


def masked_block(
    tokens_NxL: IntArray,
    mask_NxL: BoolArray,
    widths: tuple[int, int],
    vocabulary: Vocabulary,
    first: Sequence[int] = (),
) -> Block:
    """Inputs and targets under any mask, as `apply_mask_block` has them, ended and padded to the `widths` of both.

    `first` are ids that begin the inputs of each row. Raises ValueError where sentinels or widths do not suffice.
    """
    inputs, input_counts_N = _replace_runs(tokens_NxL, ~mask_NxL, vocabulary.sentinels)
    targets, target_counts_N = _spans_after_sentinels(tokens_NxL, mask_NxL, vocabulary.sentinels)
    return Block(
        ended_rows(inputs, input_counts_N, widths[0], vocabulary, first),
        ended_rows(targets, target_counts_N, widths[1], vocabulary),
        len(first) + input_counts_N + 1,
        target_counts_N + 1,
    )


def rolled(mask_NxL: BoolArray, keys_N: UInt64Array) -> BoolArray:
    """Each mask turned to the right by a number of positions that its key draws, all equally likely: (N, L)."""
    length = mask_NxL.shape[1]
    shifts_N = uniform_below(hash64(keys_N, _ROLL), max(length, 1)).astype(np.intp)
    places_NxL = np.arange(length) - shifts_N[:, None]  # negative ones count from the end
    return np.take_along_axis(mask_NxL, places_NxL, axis=1)


def noise_mask_block(keys_N: UInt64Array, length: int, noise_density: float, mean_span_length: float) -> BoolArray:
    """Draw a mask for each key: (N, L) bool, True where a token is masked; SeqIO's `random_spans_noise_mask`.

    Every row has the numbers of masked tokens and spans that `noise_counts` gives.
    """
    keys_N = np.asarray(keys_N, dtype=np.uint64)
    num_noise, num_spans = noise_counts(length, noise_density, mean_span_length)
    if num_spans == 0:
        return np.zeros((len(keys_N), length), dtype=np.bool_)
    runs_NxKx2 = np.empty((len(keys_N), num_spans, 2), dtype=np.intp)
    runs_NxKx2[:, :, 0] = random_compositions(hash64(keys_N, _KEPT), length - num_noise, num_spans)
    runs_NxKx2[:, :, 1] = random_compositions(hash64(keys_N, _NOISE), num_noise, num_spans)
    masked = np.tile(np.array([False, True]), len(keys_N) * num_spans)
    return np.repeat(masked, runs_NxKx2.ravel()).reshape(len(keys_N), length)


def random_compositions(keys_N: UInt64Array, total: int, parts: int) -> npt.NDArray[np.intp]:
    """Split `total` into `parts` positive parts, all ways equally likely: (N, parts).

    A composition is a set of parts - 1 cuts among the total - 1 gaps, drawn for all rows at once by Floyd's
    algorithm (Bentley and Floyd 1987, "A sample of brilliance"), which needs one draw a cut and no rejection.
    """
    gaps, cuts = total - 1, parts - 1
    num_rows = len(keys_N)
    row_start_N = np.arange(num_rows, dtype=np.intp) * gaps
    chosen = np.zeros(num_rows * gaps, dtype=np.bool_)
    first_top = gaps - cuts
    draws_NxC = uniform_below(stream64(keys_N, cuts), np.arange(first_top + 1, gaps + 1))
    draws_CxN = np.ascontiguousarray(draws_NxC.T).astype(np.intp) + row_start_N
    for cut in range(cuts):
        place_N = draws_CxN[cut]
        place_N = np.where(chosen[place_N], row_start_N + (first_top + cut), place_N)
        chosen[place_N] = True
    edges_NxP1 = np.empty((num_rows, parts + 1), dtype=np.intp)
    edges_NxP1[:, 0] = 0
    edges_NxP1[:, -1] = total
    edges_NxP1[:, 1:-1] = np.flatnonzero(chosen).reshape(num_rows, cuts) - row_start_N[:, None] + 1
    return np.diff(edges_NxP1, axis=1)


def apply_mask_block(
    tokens_NxL: IntArray, mask_NxL: BoolArray, sentinels: tuple[int, ...]
) -> tuple[list[Int32Array], list[Int32Array]]:
    """Inputs and targets of each row under any mask, without end of sequence or padding: two lists of N arrays.

    In the inputs, sentinel k stands for the k-th masked span; in the targets it stands before the tokens of that
    span, and a text that ends unmasked ends in one more sentinel. SeqIO's `noise_span_to_unique_sentinel` and
    `nonnoise_span_to_unique_sentinel`, except that a text that starts masked has its first sentinel, too.
    Raises ValueError where a row needs more sentinels than there are.
    """
    tokens_NxL, mask_NxL = np.asarray(tokens_NxL), np.asarray(mask_NxL, dtype=np.bool_)
    if tokens_NxL.shape != mask_NxL.shape:
        raise ValueError(f"tokens of shape {tokens_NxL.shape} and a mask of shape {mask_NxL.shape} do not fit")
    inputs = _split_rows(*_replace_runs(tokens_NxL, ~mask_NxL, sentinels))
    return inputs, _split_rows(*_spans_after_sentinels(tokens_NxL, mask_NxL, sentinels))


def _spans_after_sentinels(
    tokens_NxL: IntArray, mask_NxL: BoolArray, sentinels: tuple[int, ...]
) -> tuple[Int32Array, npt.NDArray[np.intp]]:
    """Targets, as `_replace_runs` gives them."""
    if mask_NxL[:, :1].any():
        # An unmasked token before the text makes every first sentinel the replacement of an unmasked run.
        tokens_NxL = np.pad(tokens_NxL, ((0, 0), (1, 0)))
        mask_NxL = np.pad(mask_NxL, ((0, 0), (1, 0)))
    return _replace_runs(tokens_NxL, mask_NxL, sentinels)


def _replace_runs(
    tokens_NxL: IntArray, keep_NxL: BoolArray, sentinels: tuple[int, ...]
) -> tuple[Int32Array, npt.NDArray[np.intp]]:
    """Put one sentinel for each run of tokens not kept: all rows' tokens in one flat array, and their counts (N,)."""
    starts_NxL = ~keep_NxL
    starts_NxL[:, 1:] &= keep_NxL[:, :-1]
    runs_N = np.count_nonzero(starts_NxL, axis=1)
    most = int(runs_N.max(initial=0))
    if most > len(sentinels):
        raise ValueError(f"a row needs {most} sentinels, but the vocabulary has {len(sentinels)}: mask fewer spans")
    start_positions = np.flatnonzero(starts_NxL)
    first_run_N = np.cumsum(runs_N) - runs_N
    run_numbers = np.arange(len(start_positions)) - np.repeat(first_run_N, runs_N)
    tokens = tokens_NxL.astype(np.int32).ravel()
    tokens[start_positions] = np.array(sentinels, dtype=np.int32)[run_numbers]
    left_NxL = keep_NxL | starts_NxL
    return tokens[left_NxL.ravel()], np.count_nonzero(left_NxL, axis=1)


def _split_rows(tokens: Int32Array, counts_N: npt.NDArray[np.intp]) -> list[Int32Array]:
    return np.split(tokens, np.cumsum(counts_N)[:-1]) if len(counts_N) else []
