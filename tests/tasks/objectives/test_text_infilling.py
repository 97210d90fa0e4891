import math

import numpy as np
import pytest

from spanloom.settings.objectives import TextInfilling
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.objectives.text_infilling import denoiser, masked_spans, span_lengths_block
from spanloom.tasks.randomness import hash64
from spanloom.tasks.span_lengths import noise_counts
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
MASK = BYTES.sentinels[0]


def test_span_lengths_are_poisson_given_their_sum():
    lengths = span_lengths_block(hash64(1, np.arange(20_000)), 12, 4)
    assert (lengths.sum(axis=1) == 12).all()
    counts = np.bincount(lengths[:, 2], minlength=13)
    expected = [math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) * 20_000 for k in range(13)]
    assert np.abs(counts - expected).max() < 5 * math.sqrt(max(expected))
    assert counts[0] > 0, "some masks stand for nothing"


def inputs_of(length, rows=3000):
    objective = TextInfilling(64)
    made = denoiser(objective, BYTES)
    tokens = np.tile(np.arange(3, 3 + length), (rows, 1))
    block = made.make(tokens, hash64(2, np.arange(rows)))
    counts = noise_counts(length, objective.noise_density, objective.mean_span_length)
    return made, counts, block


def test_the_inputs_are_the_text_with_one_mask_for_each_span():
    made, (noise, spans), block = inputs_of(denoiser(TextInfilling(64), BYTES).raw_length)
    assert (block.inputs[:, -1] == 1).all(), "rows are full"
    masks = block.inputs == MASK
    assert (masks.sum(axis=1) == spans).all()
    assert not (masks[:, 1:] & masks[:, :-1]).any(), "no two masks are neighbours"
    for row in block.inputs[:50]:
        kept = row[(row != MASK) & (row != 1)]
        assert len(kept) == made.raw_length - noise and (np.diff(kept) > 0).all()
    assert block.targets[0, :-1].tolist() == list(range(3, 3 + made.raw_length))


def test_masks_stand_anywhere_the_ends_included():
    _, (noise, spans), block = inputs_of(20)
    width = 20 - noise + spans
    counts = (block.inputs[:, :width] == MASK).sum(axis=0)
    assert counts[0] > 0 and counts[-1] > 0
    assert abs(int(counts[0]) - int(counts[-1])) < 5 * math.sqrt(2 * counts[0])


@pytest.mark.parametrize("length", [2, 20, 61])
def test_the_spans_told_are_those_that_the_inputs_lack(length):
    objective = TextInfilling(64)
    keys, tokens = hash64(3, np.arange(200)), np.arange(3, 3 + length)
    block = denoiser(objective, BYTES).make(np.tile(tokens, (200, 1)), keys)
    starts, lengths = masked_spans(keys, length, objective)
    for row, begins, counts in zip(block.inputs.tolist(), starts.tolist(), lengths.tolist(), strict=True):
        made, at = [], 0
        for begin, count in zip(begins, counts, strict=True):
            made += [*tokens[at:begin].tolist(), MASK]
            at = begin + count
        made += [*tokens[at:].tolist(), 1]
        assert row[: len(made)] == made and not any(row[len(made) :])
