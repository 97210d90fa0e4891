"""Randomness as a pure function of counters: the same numbers on every machine, release and split of the work.

NumPy's generators promise no stable streams between releases, and making one per example costs about 10 us. Here
every number is a hash of integers (seed, task, epoch, example, ...), computed for a whole block at a time.

The mixing function is splitmix64's (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
"""

import hashlib
import math

import numpy as np
import numpy.typing as npt

UInt64Array = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_LOW_32 = np.uint64(0xFFFFFFFF)
_SHIFT_32 = np.uint64(32)
_FEISTEL_ROUNDS = 16
_SORTED_SIZE = 1024


def key_of(text: str) -> int:
    """A stable 64-bit key of a name: the first 8 bytes of its BLAKE2b digest, little end first."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def hash64(*words: npt.ArrayLike) -> UInt64Array:
    """Hash integers, or broadcastable arrays of them, to uint64.

    The order of the words matters; negative integers count modulo 2**64. One word gives splitmix64's first output
    for that seed. For a fixed prefix the last word is mapped one-to-one, so counters never collide.
    Raises ValueError without words.
    """
    if not words:
        raise ValueError("hash64 needs at least one word")
    with np.errstate(over="ignore"):  # NumPy warns of wrapping for single numbers, never for arrays
        state = _mix(_as_uint64(words[0]) + _GAMMA)
        for word in words[1:]:
            state = _mix((state ^ _as_uint64(word)) + _GAMMA)
    return state


def stream64(keys_N: UInt64Array, count: int) -> UInt64Array:
    """The first `count` outputs of splitmix64 for each key: (N,) uint64 -> (N, count) uint64."""
    counters_C = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    return _mix(np.asarray(keys_N, dtype=np.uint64)[:, None] + counters_C)


def uniform_below(hashes: UInt64Array, bound: npt.ArrayLike) -> UInt64Array:
    """Map uniform 64-bit hashes to integers in [0, bound), bound (broadcastable) from 1 to 2**32.

    Takes the high word of the 96-bit product (Lemire 2019), so that no value is likelier than another by more than
    bound / 2**64. Raises ValueError where a bound is out of range.
    """
    bound = np.asarray(bound)
    if bound.size and (bound.min() < 1 or bound.max() > 1 << 32):
        raise ValueError(f"uniform_below takes bounds from 1 to 2**32, not {bound.min()} to {bound.max()}")
    return _high_word(hashes, bound.astype(np.uint64))


def permute_index(index: npt.ArrayLike, n: int, key: int) -> npt.NDArray[np.int64]:
    """Where a random permutation of [0, n) sends each index, without making the permutation: a global shuffle.

    A bijection of [0, n) for every key; any shape of indexes in, the same shape of int64 out, n up to 2**62.

    A generalised Feistel network on pairs (left, right) with a * b >= n cells (Black and Rogaway 2002, "Ciphers with
    arbitrary finite domains"); the fewer than a cells too many are left by walking on along the cycle. Up to 1024
    indexes, where such a network does not reach all permutations equally often, are sorted by their hashes instead.
    Raises ValueError for an n out of range, IndexError for an index outside of [0, n).
    """
    if not 1 <= n <= 1 << 62:
        raise ValueError(f"permute_index takes sizes from 1 to 2**62, not {n}")
    given = np.asarray(index, dtype=np.int64)
    if given.size and (given.min() < 0 or given.max() >= n):
        raise IndexError(f"index {given.min() if given.min() < 0 else given.max()} is outside of [0, {n})")
    if n <= _SORTED_SIZE:
        return np.argsort(hash64(key, np.arange(n))).astype(np.int64)[given]
    rows = math.isqrt(n - 1) + 1
    columns = -(-n // rows)
    round_keys = stream64(hash64(key, n).reshape(1), _FEISTEL_ROUNDS)[0]
    result = _feistel(given.astype(np.uint64).ravel(), rows, columns, round_keys)
    outside = np.flatnonzero(result >= np.uint64(n))
    while outside.size:
        result[outside] = _feistel(result[outside], rows, columns, round_keys)
        outside = outside[result[outside] >= np.uint64(n)]
    return result.astype(np.int64).reshape(given.shape)


def _feistel(cells: UInt64Array, rows: int, columns: int, round_keys: UInt64Array) -> UInt64Array:
    """One pass of the network, a bijection of [0, rows * columns)."""
    left, right = np.divmod(cells, np.uint64(columns))
    for even_key, odd_key in round_keys.reshape(-1, 2):
        right = _add_below(right, _mix(left + even_key), np.uint64(columns))
        left = _add_below(left, _mix(right + odd_key), np.uint64(rows))
    return left * np.uint64(columns) + right


def _add_below(values: UInt64Array, hashes: UInt64Array, bound: np.uint64) -> UInt64Array:
    """(values + uniform draws) modulo the bound, for values below it."""
    total = values + _high_word(hashes, bound)
    total -= bound * (total >= bound)
    return total


def _high_word(hashes: UInt64Array, bound: UInt64Array | np.uint64) -> UInt64Array:
    """floor(hashes * bound / 2**64) for bounds of up to 2**32, without a wider type."""
    carry = ((hashes & _LOW_32) * bound) >> _SHIFT_32
    result: UInt64Array = ((hashes >> _SHIFT_32) * bound + carry) >> _SHIFT_32
    return result


def _as_uint64(word: npt.ArrayLike) -> UInt64Array:
    if isinstance(word, int):
        return np.array(word & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    array = np.asarray(word)
    if array.dtype.kind not in "iu":
        raise TypeError(f"hashes take integers, not {array.dtype}")
    return array.astype(np.uint64)


def _mix(state: UInt64Array) -> UInt64Array:
    """splitmix64's finaliser; every step is invertible, so it is a bijection of 64-bit words."""
    state = np.asarray(state, dtype=np.uint64)
    state = (state ^ (state >> np.uint64(30))) * _MULTIPLIER_1
    state = (state ^ (state >> np.uint64(27))) * _MULTIPLIER_2
    result: UInt64Array = state ^ (state >> np.uint64(31))
    return result
