import hashlib
from itertools import pairwise

import numpy as np
import pytest

from spanloom.tasks.heldout import Part, heldout_numbers, text_is_heldout

pytestmark = pytest.mark.short


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.003, 0.01, 0.05, 1 / 3, 0.5, 0.9, 0.999])
def test_any_cutting_into_runs_gives_the_same_documents(share):
    whole = heldout_numbers(0, 5000, share)
    cuts = [0, 1, 2, 3, 10, 999, 1000, 4999, 5000]
    pieces = [heldout_numbers(a, b - a, share) for a, b in pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    # exact to one, and one more for the first stratum
    assert abs(whole.sum() - 5000 * share) <= 2
    assert whole.sum() == 0 if share == 0 else whole[:10].sum() >= 1


def test_the_choice_is_pinned():
    assert np.flatnonzero(heldout_numbers(0, 1000, 0.005)).tolist() == PINNED
    assert hashlib.sha256(heldout_numbers(10**9, 100_000, 0.01).tobytes()).hexdigest()[:16] == PINNED_HASH


PINNED = [2, 364, 512, 760, 840]
PINNED_HASH = "7f12a96307c7ea28"


def test_held_out_documents_are_spread_at_random():
    gaps = np.diff(np.flatnonzero(heldout_numbers(0, 1_000_000, 0.01)))
    # the difference of two uniform places in [0, 100): mean 100, standard deviation 100 / sqrt(6)
    assert abs(gaps.mean() - 100) < 0.5 and abs(gaps.std() - 100 / 6**0.5) < 1


def test_the_parts_are_disjoint_and_everything():
    train, heldout = Part("train", 0.1), Part("heldout", 0.1)
    for count in (1, 7, 0, 100, 3):
        np.testing.assert_array_equal(train.mask(count), ~heldout.mask(count))
    assert train.seen == heldout.seen == 111


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_must_be_a_share(share):
    with pytest.raises(ValueError, match="from 0 to below 1"):
        Part("train", share)


def test_texts_are_held_out_by_content():
    held = [text_is_heldout(f"text {n}", 0.05) for n in range(20_000)]
    assert abs(sum(held) - 1000) < 150
    assert held[:50] == [text_is_heldout(f"text {n}", 0.05) for n in range(50)]
    assert not any(text_is_heldout(f"text {n}", 0.0) for n in range(1000))
