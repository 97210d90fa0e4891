"""CRC-32C (Castagnoli; RFC 3720, appendix B.4) of many stretches of bytes at once, in NumPy.

A CRC is linear over GF(2): that of a block is the sum (xor) of what each of its places contributes, which tables hold
for two bytes at a time, and a block before `n` more bytes counts as if `n` zeros followed it.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Crcs = NDArray[np.uint32]
Places = NDArray[np.int64]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_BLOCK = 32  # bytes; longer blocks need tables that leave the processor's cache, shorter ones more joining
_BYTE = np.uint32(0xFF)


def crc32c(data_N: Bytes, starts_R: Places, ends_R: Places) -> Crcs:
    """CRC-32C of each stretch data[start:end], uint32 [R]; stretches may overlap and be empty."""
    lengths_R = ends_R - starts_R
    crcs_R = _append_zeros(np.full(len(lengths_R), 0xFFFFFFFF, np.uint32), lengths_R)
    used_R = np.flatnonzero(lengths_R)
    if len(used_R):
        crcs_R[used_R] ^= _remainders(data_N, starts_R[used_R], ends_R[used_R])
    return ~crcs_R


def extended(crc: int, data_N: Bytes) -> int:
    """CRC-32C of bytes whose own is `crc` (0: none) with these after them."""
    register = _append_zeros(np.array([crc ^ 0xFFFFFFFF], np.uint32), np.array([len(data_N)], np.int64))
    if len(data_N):
        register ^= _remainders(data_N, np.array([0], np.int64), np.array([len(data_N)], np.int64))
    return int(~register[0])


def _remainders(data_N: Bytes, starts_R: Places, ends_R: Places) -> Crcs:
    """The CRC register after each stretch where it began at zero; no stretch may be empty."""
    counts_R = (ends_R - starts_R + _BLOCK - 1) // _BLOCK
    firsts_R = np.cumsum(counts_R) - counts_R
    from_end_B = np.repeat(firsts_R + counts_R, counts_R) - np.arange(counts_R.sum())  # 1 for a stretch's last block
    blocks_BxK = _blocks(data_N, np.repeat(ends_R, counts_R) - from_end_B * _BLOCK)
    before_R = counts_R * _BLOCK - (ends_R - starts_R)  # bytes of a first block that are none of the stretch's
    blocks_BxK[firsts_R] *= np.arange(_BLOCK) >= before_R[:, None]
    pairs_BxP = blocks_BxK.view("<u2")
    tables_PxV = _block_tables()
    crcs_B = tables_PxV[0].take(pairs_BxP[:, 0])
    for place in range(1, _BLOCK // 2):
        crcs_B ^= tables_PxV[place].take(pairs_BxP[:, place])
    return np.asarray(np.bitwise_xor.reduceat(_append_zeros(crcs_B, (from_end_B - 1) * _BLOCK), firsts_R), np.uint32)


def _blocks(data_N: Bytes, starts_B: Places) -> Bytes:
    """The block that begins at each place, uint8 [B, _BLOCK]; places before the data hold zeros."""
    padded = np.concatenate([np.zeros(_BLOCK, np.uint8), data_N])
    return np.lib.stride_tricks.sliding_window_view(padded, _BLOCK)[starts_B + _BLOCK]


def _append_zeros(crcs_B: Crcs, counts_B: Places) -> Crcs:
    """The register after so many more zero bytes each: one pass for each binary digit of the largest count."""
    crcs_B = crcs_B.copy()
    for digit in range(int(counts_B.max(initial=0)).bit_length()):
        chosen = np.flatnonzero(counts_B >> digit & 1)
        if len(chosen):
            crcs_B[chosen] = _apply(_zeros_table(digit), crcs_B[chosen])
    return crcs_B


def _apply(table_4xV: Crcs, crcs: Crcs) -> Crcs:
    """A linear map of registers, given by what it makes of each of the four bytes."""
    applied = table_4xV[0].take(crcs & _BYTE)
    for place in range(1, 4):
        applied ^= table_4xV[place].take(crcs >> np.uint32(8 * place) & _BYTE)
    return applied


@cache
def _zeros_table(digit: int) -> Crcs:
    """The map of 2**digit zero bytes, uint32 [4, 256]."""
    if digit:
        half = _zeros_table(digit - 1)
        return _apply(half, half)
    crcs_4xV = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    return _byte_table().take(crcs_4xV & _BYTE) ^ (crcs_4xV >> np.uint32(8))


@cache
def _byte_table() -> Crcs:
    """The register after one byte where it began at zero, uint32 [256]."""
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = np.where(crcs & 1, crcs >> 1 ^ np.uint32(_POLYNOMIAL), crcs >> 1)
    return crcs


@cache
def _block_tables() -> Crcs:
    """What two bytes at each place of a block add to its register, uint32 [_BLOCK / 2, 65536]; 4 MiB."""
    zeros = _zeros_table(0)
    places = [_byte_table()]
    while len(places) < _BLOCK:
        places.insert(0, _apply(zeros, places[0]))
    low, high = np.arange(1 << 16) & 0xFF, np.arange(1 << 16) >> 8
    return np.stack([places[at][low] ^ places[at + 1][high] for at in range(0, _BLOCK, 2)])
