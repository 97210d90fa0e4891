"""Full language modelling: all of the text is written, nothing of it is read (t5's `full_lm`, Raffel et al. 2020)."""

from functools import partial

import numpy as np

from spanloom.settings.objectives import FullLM
from spanloom.tasks.block import Block, IntArray
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.randomness import UInt64Array
from spanloom.vocabularies.vocabulary import Vocabulary


def denoiser(objective: FullLM, vocabulary: Vocabulary) -> Denoiser:
    """Pieces as long as the targets: the stream itself says where documents end."""
    length = objective.targets_length
    make = partial(_block, width=length, vocabulary=vocabulary)
    return Denoiser(length, 1, length, num_sentinels=0, make=make, longest_of=_longest_of)


def _longest_of(length: int) -> tuple[int, int]:
    return 1, length


def _block(tokens_NxL: IntArray, keys_N: UInt64Array, *, width: int, vocabulary: Vocabulary) -> Block:
    num_rows, length = tokens_NxL.shape
    inputs_Nx1 = np.full((num_rows, 1), vocabulary.eos_id, np.int32)  # an encoder needs something to read
    targets_NxT = np.full((num_rows, width), vocabulary.pad_id, np.int32)
    targets_NxT[:, :length] = tokens_NxL
    return Block(inputs_Nx1, targets_NxT, np.ones(num_rows, np.int64), np.full(num_rows, length))
