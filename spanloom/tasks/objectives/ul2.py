"""UL2's mixture of denoisers: regular, sequential and extreme ones behind mode tokens (Tay et al. 2022).

All denoisers read pieces of one length, the most for which each has room, so that they share one token stream and the
key of an example alone decides which of them it gets.

Letters: N examples, L raw tokens, S input and T target positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from spanloom.settings.objectives import UL2
from spanloom.tasks.block import Block, IntArray, empty_block
from spanloom.tasks.objectives.denoiser import Denoiser
from spanloom.tasks.objectives.prefix_lm import longest_of_prefixes, prefix_block
from spanloom.tasks.randomness import UInt64Array, hash64, uniform_below
from spanloom.tasks.span_corruption import longest_of_spans, masked_block, noise_mask_block, rolled
from spanloom.tasks.span_lengths import noise_counts, span_lengths
from spanloom.vocabularies.vocabulary import Vocabulary

_CHOICE = 4  # beside the streams that masks draw from
NUM_MODES = 3


@dataclass(frozen=True)
class Part:
    """One denoiser of the mixture."""

    rate: float
    """How often it is drawn, relative to the others."""
    first: tuple[int, ...]
    """Ids of its mode."""
    density: float
    """Mean share of the tokens that it has written."""
    mean_span_length: float | None
    """Mean length of a masked span; None for the S-denoiser."""


def denoiser(objective: UL2, vocabulary: Vocabulary) -> Denoiser:
    """The mixture. Raises ValueError, with the reason and the fix, where a denoiser does not go with the lengths, the
    sentinels do not suffice or the vocabulary lacks what tells the modes.
    """
    parts = parts_of(objective, vocabulary)
    roll = int(objective.random_roll)
    raw_length = min(_room(part, objective.inputs_length, roll) for part in parts)
    spans = max(
        (
            noise_counts(raw_length, part.density, part.mean_span_length)[1] + roll
            for part in parts
            if part.mean_span_length
        ),
        default=0,
    )
    _check_sentinels(objective, vocabulary, spans)
    widths = (objective.inputs_length, _longest_of(raw_length, parts, roll)[1])
    rates = np.cumsum([part.rate for part in parts])
    bounds = np.round(rates / rates[-1] * 2.0**32).astype(np.uint64)
    make = partial(_block, parts=parts, bounds=bounds, roll=objective.random_roll, widths=widths, vocabulary=vocabulary)
    longest_of = partial(_longest_of, parts=parts, roll=roll)
    return Denoiser(raw_length, *widths, num_sentinels=spans, make=make, longest_of=longest_of)


def parts_of(objective: UL2, vocabulary: Vocabulary) -> tuple[Part, ...]:
    """The denoisers that are ever drawn: those of R, of S, of X. Raises ValueError where the modes cannot be told."""
    regular, sequential, extreme = modes_of(objective, vocabulary)
    found = [
        *_span_parts(objective.r_rate, regular, objective.r_noise_densities, objective.r_mean_span_lengths),
        Part(objective.s_rate, sequential, objective.s_noise_density, None),
        *_span_parts(objective.x_rate, extreme, objective.x_noise_densities, objective.x_mean_span_lengths),
    ]
    return tuple(part for part in found if part.rate > 0)


def modes_of(objective: UL2, vocabulary: Vocabulary) -> tuple[tuple[int, ...], ...]:
    """Ids that tell R, S and X: the texts set, or the last three sentinels. Raises ValueError where there are none."""
    if not objective.modes:
        if len(vocabulary.sentinels) < NUM_MODES:
            raise ValueError(
                f"the modes of UL2 are told by the last {NUM_MODES} sentinels, but the vocabulary has "
                f"{len(vocabulary.sentinels)}: use one with more, or texts as modes: --task.objective.modes R S X"
            )
        return tuple((sentinel,) for sentinel in vocabulary.sentinels[-NUM_MODES:])
    found = tuple(tuple(vocabulary.encode(text).tolist()) for text in objective.modes)
    for text, ids in zip(objective.modes, found, strict=True):
        if not ids or vocabulary.unk_id in ids:
            raise ValueError(
                f"the vocabulary cannot write the mode {text!r}: give task.objective.modes texts that it knows, or "
                "none to use its last three sentinels"
            )
    return found


def choices(keys_N: UInt64Array, bounds_P: UInt64Array) -> IntArray:
    """The number of the part that each key draws, (N,): part p below `bounds_P[p]` of 2**32 draws."""
    return np.searchsorted(bounds_P, uniform_below(hash64(keys_N, _CHOICE), 1 << 32), side="right")


def _span_parts(
    rate: float, mode: tuple[int, ...], densities: tuple[float, ...], means: tuple[float, ...]
) -> Iterator[Part]:
    for density, mean in zip(densities, means, strict=True):
        yield Part(rate / len(means), mode, density, mean)


def _room(part: Part, inputs_length: int, roll: int) -> int:
    """The most raw tokens whose inputs surely fit behind the mode."""
    room = inputs_length - len(part.first)
    if part.mean_span_length is None:
        if room < 3:
            raise ValueError(f"inputs_length={inputs_length} has no room for a mode, a prefix and the end of sequence")
        return room - 1
    return span_lengths(room - roll, part.density, part.mean_span_length).raw_length


def _longest_of(length: int, parts: tuple[Part, ...], roll: int) -> tuple[int, int]:
    inputs, targets = zip(*(_longest_of_part(part, length, roll) for part in parts), strict=True)
    return max(inputs), max(targets)


def _longest_of_part(part: Part, length: int, roll: int) -> tuple[int, int]:
    if part.mean_span_length is None:
        inputs, targets = longest_of_prefixes(length, part.density)
    else:
        inputs, targets = longest_of_spans(length, part.density, part.mean_span_length, roll)
    return len(part.first) + inputs, targets


def _check_sentinels(objective: UL2, vocabulary: Vocabulary, spans: int) -> None:
    free = len(vocabulary.sentinels) - (0 if objective.modes else NUM_MODES)
    if spans > free:
        kept = "" if objective.modes else f", of which the last {NUM_MODES} tell the modes"
        raise ValueError(
            f"UL2 with inputs of {objective.inputs_length} tokens takes {spans} sentinels for the shortest spans, but "
            f"the vocabulary has {len(vocabulary.sentinels)}{kept}: use longer spans "
            f"(--task.objective.x-mean-span-lengths), an inputs_length of about "
            f"{objective.inputs_length * free // spans}, or a vocabulary with more sentinels"
        )


def _block(
    tokens_NxL: IntArray,
    keys_N: UInt64Array,
    *,
    parts: tuple[Part, ...],
    bounds: UInt64Array,
    roll: bool,
    widths: tuple[int, int],
    vocabulary: Vocabulary,
) -> Block:
    num_rows = len(tokens_NxL)
    made = empty_block(num_rows, widths)
    parts_N = choices(keys_N, bounds)
    for number in np.unique(parts_N).tolist():
        own = np.flatnonzero(parts_N == number)
        block = _part_block(parts[number], tokens_NxL[own], keys_N[own], roll, widths, vocabulary)
        made.put(own, block)
    return made


def _part_block(
    part: Part, tokens_NxL: IntArray, keys_N: UInt64Array, roll: bool, widths: tuple[int, int], vocabulary: Vocabulary
) -> Block:
    if part.mean_span_length is None:
        return prefix_block(
            tokens_NxL, keys_N, density=part.density, widths=widths, vocabulary=vocabulary, first=part.first
        )
    mask_NxL = noise_mask_block(keys_N, tokens_NxL.shape[1], part.density, part.mean_span_length)
    mask_NxL = rolled(mask_NxL, keys_N) if roll else mask_NxL
    return masked_block(tokens_NxL, mask_NxL, widths, vocabulary, part.first)
