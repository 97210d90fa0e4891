"""I.i.d. denoising: every token is masked by itself, runs of masked ones share a sentinel (Raffel et al. 2020).

How many tokens and runs are masked is left to chance, which no fixed length holds for sure. Lengths and sentinels hold
four standard deviations above the mean of both; of an example that draws more (about one in 30,000) the last tokens
stay.

Letters: N examples, L raw tokens.
"""

import math
from functools import partial

import numpy as np

from spanloom.settings.objectives import IidDenoising
from spanloom.tasks.block import Block, IntArray
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.randomness import UInt64Array, hash64, stream64, uniform_below
from spanloom.tasks.span_corruption import BoolArray, masked_block
from spanloom.vocabularies.vocabulary import Vocabulary

_NOISE, _ONE = 1, 2
_DEVIATIONS = 4


def denoiser(objective: IidDenoising, vocabulary: Vocabulary) -> Denoiser:
    """Pieces of one token fewer than the inputs have room for, as in SeqIO.

    Raises ValueError, with the reason and the fix, for too short inputs and where the sentinels do not suffice.
    """
    raw_length = objective.inputs_length - 1
    if raw_length < 2:
        raise ValueError(f"inputs_length={objective.inputs_length} has no room for a token that stays: use at least 3")
    most_tokens, most_runs = most_masked(raw_length, objective.noise_density)
    needed, available = most_runs + 1, len(vocabulary.sentinels)  # one more where the text ends unmasked
    if needed > available:
        raise ValueError(
            f"i.i.d. denoising of inputs of {objective.inputs_length} tokens masks up to {most_runs} runs of tokens, "
            f"whose targets take {needed} sentinels, but the vocabulary has {available}: use an inputs_length of about "
            f"{objective.inputs_length * available // needed}, a lower noise_density, or a vocabulary with more of them"
        )
    widths = (objective.inputs_length, most_tokens + most_runs + 2)
    make = partial(_block, objective=objective, most=(most_tokens, most_runs), widths=widths, vocabulary=vocabulary)
    longest_of = partial(_longest_of, most=(most_tokens, most_runs))
    return Denoiser(raw_length, *widths, num_sentinels=needed, make=make, longest_of=longest_of)


def most_masked(length: int, density: float) -> tuple[int, int]:
    """(tokens, runs of tokens) that are masked at most in a piece: their means and four standard deviations.

    The number of runs among independent tokens has the mean L d (1 - d) + d^2 and a variance of about
    L d (1 - d) (1 - 3 d (1 - d)).
    """
    spread = density * (1 - density)
    tokens = length * density + _DEVIATIONS * math.sqrt(length * spread)
    runs = length * spread + density**2 + _DEVIATIONS * math.sqrt(length * spread * (1 - 3 * spread))
    most_tokens = min(math.ceil(tokens), length)
    return most_tokens, min(math.ceil(runs), most_tokens, (length + 1) // 2)


def iid_mask_block(keys_N: UInt64Array, length: int, density: float, most: tuple[int, int]) -> BoolArray:
    """Draw a mask for each key, (N, L) bool, of at most so many tokens and runs.

    Where chance masks no token, one of them is masked, all equally likely, if there are two or more.
    """
    if length < 2:
        return np.zeros((len(keys_N), length), np.bool_)
    draws_NxL = uniform_below(stream64(hash64(keys_N, _NOISE), length), 1 << 32)
    mask_NxL = draws_NxL < np.uint64(round(density * (1 << 32)))
    empty = np.flatnonzero(~mask_NxL.any(axis=1))
    mask_NxL[empty, uniform_below(hash64(keys_N[empty], _ONE), length).astype(np.intp)] = True
    mask_NxL &= np.cumsum(mask_NxL, axis=1, dtype=np.int32) <= most[0]
    starts_NxL = mask_NxL.copy()
    starts_NxL[:, 1:] &= ~mask_NxL[:, :-1]
    mask_NxL &= np.cumsum(starts_NxL, axis=1, dtype=np.int32) <= most[1]
    return mask_NxL


def _longest_of(length: int, most: tuple[int, int]) -> tuple[int, int]:
    return length + 1, min(most[0], length) + min(most[1], (length + 1) // 2) + 2


def _block(
    tokens_NxL: IntArray,
    keys_N: UInt64Array,
    *,
    objective: IidDenoising,
    most: tuple[int, int],
    widths: tuple[int, int],
    vocabulary: Vocabulary,
) -> Block:
    mask_NxL = iid_mask_block(keys_N, tokens_NxL.shape[1], objective.noise_density, most)
    return masked_block(tokens_NxL, mask_NxL, widths, vocabulary)
