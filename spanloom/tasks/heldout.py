"""Which documents are kept out of training: a pure function of a document's own text.

So the same text always falls in the same part: a document that comes twice never leaks, and neither other files beside
it, nor their order, nor their format move it. A run that goes on with more text keeps what was held out before.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Split = Literal["train", "heldout"]
Mask = npt.NDArray[np.bool_]

_SCALE = 10**9


def check_share(share: float) -> None:
    """Raises ValueError for a share outside of [0, 1)."""
    if not 0 <= share < 1:
        raise ValueError(f"heldout_share is a share of the documents from 0 to below 1, not {share}")


def hashes_of(texts: Sequence[bytes]) -> npt.NDArray[np.uint64]:
    """What decides the part of each text (UTF-8): (n,) uint64, the first 8 bytes of a BLAKE2b digest of their own."""
    digests = [hashlib.blake2b(b"held-out\0" + text, digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)


def bound_of(share: float) -> int:
    """Documents whose hash is below it are held out: an independent draw each, so about `share` of them are."""
    return round(share * _SCALE) * (2**64 // _SCALE)


def bound_for(share: float, texts: Iterable[Sequence[bytes]]) -> int:
    """The bound for these documents, with which small corpora have a held-out one, too.

    Where the share alone would hold out nothing it is the text with the lowest hash, unless there is no other.
    `texts` are read no further than the first document that is held out, one in 1/share.
    """
    bound = bound_of(share)
    found: set[int] = set()
    for batch in texts if bound else ():
        if batch:
            found = {*sorted({*found, *hashes_of(batch).tolist()})[:2]}
            if min(found) < bound:
                return bound
    return min(found) + 1 if len(found) > 1 else bound


def is_heldout(texts: Sequence[bytes], bound: int) -> Mask:
    """Which of the texts are held out: (n,) bool."""
    return hashes_of(texts) < np.uint64(bound)
