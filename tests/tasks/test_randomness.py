import itertools
import math

import numpy as np
import pytest

from spanloom.tasks.randomness import hash64, key_of, permute_index, stream64, uniform_below

# Published outputs of splitmix64 (S. Vigna's splitmix64.c; rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64).
SPLITMIX64 = {
    1234567: (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821),
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B),
}


def five_sigma(observed: np.ndarray, expected: np.ndarray | float) -> bool:
    """Chi-square of counts against expected ones, within five standard deviations of its mean."""
    expected = np.broadcast_to(expected, observed.shape)
    freedom = observed.size - 1
    return float(((observed - expected) ** 2 / expected).sum()) < freedom + 5 * math.sqrt(2 * freedom) + 10


@pytest.mark.short
@pytest.mark.parametrize("seed", SPLITMIX64)
def test_stream_equals_published_splitmix64(seed: int) -> None:
    assert stream64(np.array([seed], np.uint64), 5).tolist() == [list(SPLITMIX64[seed])]
    assert int(hash64(seed)) == SPLITMIX64[seed][0]


@pytest.mark.short
def test_fixed_vectors_of_our_own() -> None:
    """These decide the data of every run: a change here changes all runs."""
    assert key_of("") == int.from_bytes(bytes.fromhex("e4a6a0577479b2b4"), "little")  # b2sum -l 64 of nothing
    assert key_of("quickstart") == 9423990135957718360
    assert hash64(1, 2, 3).tolist() == 15020427595393229491
    assert hash64(7, np.arange(3)).tolist() == [13309476754707697221, 4414019431610648415, 5090977316425868581]
    assert permute_index(np.arange(10), 10, 42).tolist() == [7, 4, 0, 2, 6, 5, 1, 8, 3, 9]
    assert permute_index(np.arange(4), 10**6, 42).tolist() == [477664, 452436, 643628, 168219]


def test_hash64_takes_words_in_order_and_broadcasts() -> None:
    rows, columns = np.arange(3)[:, None], np.arange(4)
    grid = hash64(5, rows, columns)
    assert grid.shape == (3, 4) and grid.dtype == np.uint64
    assert all(grid[i, j] == hash64(5, i, j) for i in range(3) for j in range(4))
    assert len(np.unique(grid)) == 12
    assert hash64(1, 2) != hash64(2, 1)
    assert hash64(-1) == hash64(2**64 - 1)
    with pytest.raises(ValueError, match="at least one"):
        hash64()
    with pytest.raises(TypeError, match="integers"):
        hash64(np.array([0.5]))


def test_hash64_bits_are_balanced_and_flip_with_any_bit_of_a_counter() -> None:
    counters = np.arange(20_000)
    bits = (hash64(9, counters)[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(len(counters))
    for bit in range(20):
        changed = hash64(9, counters) ^ hash64(9, counters ^ (1 << bit))
        flips = (changed[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
        assert np.abs(flips.mean(axis=0) - 0.5).max() < 5.5 * 0.5 / math.sqrt(len(counters))


def test_uniform_below_is_the_exact_product() -> None:
    hashes = hash64(3, np.arange(300))
    for bound in (1, 2, 3, 7, 1000, 2**31 + 11, 2**32 - 1, 2**32):
        assert uniform_below(hashes, bound).tolist() == [int(word) * bound >> 64 for word in hashes.tolist()]
    assert uniform_below(np.array([0, 2**64 - 1], np.uint64), 10).tolist() == [0, 9]
    bounds = np.arange(1, 301)
    assert (uniform_below(hashes, bounds) < bounds).all()
    for wrong in (0, -1, 2**32 + 1):
        with pytest.raises(ValueError, match="bounds"):
            uniform_below(hashes, wrong)


def test_uniform_below_is_uniform() -> None:
    hashes = hash64(4, np.arange(70_000))
    assert five_sigma(np.bincount(uniform_below(hashes, 7).astype(int), minlength=7), 10_000)


@pytest.mark.short
@pytest.mark.parametrize(
    "n", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 100, 101, 1000, 1024, 1025, 1056, 1057, 4097, 65_536, 99_991]
)
def test_permute_index_is_a_bijection(n: int) -> None:
    for key in (0, 1, 2**64 - 1):
        assert np.array_equal(np.sort(permute_index(np.arange(n), n, key)), np.arange(n))


def test_permute_index_works_index_by_index_and_for_huge_sizes() -> None:
    for n in (1000, 5000):
        whole = permute_index(np.arange(n), n, 5)
        assert [int(permute_index(i, n, 5)) for i in range(0, n, 137)] == whole[::137].tolist()
        assert permute_index(np.arange(6).reshape(2, 3), n, 5).tolist() == whole[:6].reshape(2, 3).tolist()
    n = 2**40 + 7
    far = permute_index(np.arange(10_000), n, 5)
    assert len(np.unique(far)) == 10_000 and far.min() >= 0 and far.max() < n
    assert five_sigma(np.histogram(far.astype(float), bins=20, range=(0, n))[0], 500)
    assert len(permute_index(np.array([], dtype=np.int64), 5, 1)) == 0


def test_permute_index_refuses_what_is_out_of_range() -> None:
    for index, n in ((5, 5), (-1, 5)):
        with pytest.raises(IndexError, match=r"outside of \[0, 5\)"):
            permute_index(index, n, 0)
    for n in (0, -3, 2**62 + 1):
        with pytest.raises(ValueError, match="sizes"):
            permute_index(0, n, 0)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_all_permutations_of_a_few_are_equally_likely(n: int) -> None:
    draws = 200 * math.factorial(n)
    counts = dict.fromkeys(itertools.permutations(range(n)), 0)
    for key in range(draws):
        counts[tuple(permute_index(np.arange(n), n, key).tolist())] += 1
    assert five_sigma(np.array(list(counts.values())), 200)


def test_neighbours_and_epochs_are_unrelated() -> None:
    n = 20_001
    first, second = (permute_index(np.arange(n), n, int(hash64(0, epoch))) for epoch in (0, 1))
    for a, b in ((first[:-1], first[1:]), (first, second), (first, np.arange(n))):
        assert abs(np.corrcoef(a, b)[0, 1]) < 5 / math.sqrt(n)
    together = np.histogram2d(first[:-1], first[1:], bins=20, range=[(0, n), (0, n)])[0]
    assert five_sigma(together.ravel(), (n - 1) / 400)
    steps = np.diff(first) % n
    assert five_sigma(np.histogram(steps, bins=50, range=(0, n))[0], (n - 1) / 50)
