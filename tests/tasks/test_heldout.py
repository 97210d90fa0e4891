import hashlib

import numpy as np
import pytest

from spanloom.tasks.heldout import bound_for, bound_of, check_share, hashes_of, is_heldout

pytestmark = pytest.mark.short

TEXTS = [f"text {n}".encode() for n in range(20_000)]


def test_the_choice_is_pinned():
    digests = [hashlib.blake2b(b"held-out\0" + text, digest_size=8).digest() for text in TEXTS[:300]]
    assert hashes_of(TEXTS[:300]).tolist() == [int.from_bytes(digest, "little") for digest in digests]
    assert np.flatnonzero(is_heldout(TEXTS[:300], bound_of(0.02))).tolist() == PINNED
    assert hashes_of([]).shape == (0,)


PINNED = [127, 174, 209, 268, 286]


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05, 1 / 3, 0.5, 0.9, 0.999])
def test_the_share_is_kept_as_independent_draws_keep_it(share):
    deviation = (len(TEXTS) * share * (1 - share)) ** 0.5
    assert abs(is_heldout(TEXTS, bound_of(share)).sum() - len(TEXTS) * share) < 3 * deviation


def test_a_larger_share_holds_out_what_a_smaller_one_does():
    small, large = (is_heldout(TEXTS, bound_of(share)) for share in (0.01, 0.05))
    assert not (small & ~large).any()


def test_nothing_is_held_out_without_a_share():
    assert not is_heldout(TEXTS, bound_of(0)).any()
    assert bound_for(0.0, iter([TEXTS])) == 0


@pytest.mark.parametrize("count", [2, 3, 10, 50])
def test_small_corpora_have_one_held_out_text(count):
    texts = [text for text in TEXTS if not is_heldout([text], bound_of(0.05))[0]][:count]
    lowest = texts[int(np.argmin(hashes_of(texts)))]
    for batches in ([texts], [[text] for text in texts], [texts[::-1], [], texts]):
        bound = bound_for(0.05, iter(batches))
        assert [text for text in texts if is_heldout([text], bound)[0]] == [lowest]


def test_a_single_text_is_never_held_out_alone():
    text = TEXTS[0]
    assert not is_heldout([text], bound_for(0.01, iter([[text], [text, text]])))[0]


def test_no_more_is_read_than_up_to_the_first_held_out_document():
    batches = iter([[text] for text in TEXTS])
    assert bound_for(0.02, batches) == bound_of(0.02)
    assert next(batches) == [TEXTS[PINNED[0] + 1]]


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0])
def test_a_share_must_be_a_share(share):
    with pytest.raises(ValueError, match="from 0 to below 1"):
        check_share(share)
