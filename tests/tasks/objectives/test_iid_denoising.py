import numpy as np
import pytest

from spanloom.tasks.objectives.iid_denoising import iid_mask_block, most_masked
from spanloom.tasks.randomness import hash64

pytestmark = pytest.mark.short
KEYS = hash64(3, np.arange(20_000))


def runs_of(mask_NxL):
    return mask_NxL[:, 0] + (mask_NxL[:, 1:] & ~mask_NxL[:, :-1]).sum(axis=1)


@pytest.mark.parametrize("density", [0.15, 0.5])
def test_each_position_is_masked_as_often_and_neighbours_do_not_matter(density):
    mask = iid_mask_block(KEYS, 60, density, (60, 30))
    deviation = np.sqrt(density * (1 - density) / len(KEYS))
    assert np.abs(mask.mean(axis=0) - density).max() < 5 * deviation
    both = (mask[:, 1:] & mask[:, :-1]).mean(axis=0)
    assert np.abs(both - density**2).max() < 5 * np.sqrt(density**2 / len(KEYS))


def test_bounds_hold_four_deviations():
    most_tokens, most_runs = most_masked(511, 0.15)
    mask = iid_mask_block(KEYS, 511, 0.15, (511, 256))
    tokens, runs = mask.sum(axis=1), runs_of(mask)
    for drawn, most in ((tokens, most_tokens), (runs, most_runs)):
        assert 0 < most - (drawn.mean() + 4 * drawn.std()) < 2
        assert (drawn > most).mean() < 5e-4


def test_what_exceeds_the_bounds_stays_unmasked_at_the_end():
    free = iid_mask_block(KEYS[:500], 60, 0.5, (60, 30))
    bound = iid_mask_block(KEYS[:500], 60, 0.5, (28, 14))
    assert bound.sum(axis=1).max() == 28 and runs_of(bound).max() == 14
    for whole, cut in zip(free, bound, strict=True):
        masked = np.flatnonzero(cut)
        assert np.array_equal(np.flatnonzero(whole)[: len(masked)], masked)


def test_an_example_without_masked_tokens_gets_one_anywhere():
    mask = iid_mask_block(KEYS, 5, 1e-7, (5, 3))
    assert (mask.sum(axis=1) == 1).all()
    counts = mask.sum(axis=0)
    assert np.abs(counts - 4000).max() < 5 * np.sqrt(4000)
    assert not iid_mask_block(KEYS, 1, 0.5, (1, 1)).any()
