"""Which documents are kept out of training: a pure function of a document's running number, or of its text."""

from typing import Literal

import numpy as np
import numpy.typing as npt

from spanloom.tasks.randomness import hash64, key_of, uniform_below

Split = Literal["train", "heldout"]

_KEY = key_of("spanloom held-out documents")
_SCALE = 10**9
_SURE = 10  # a source of so many documents has a held-out one, however small the share


def check_share(share: float) -> None:
    """Raises ValueError for a share outside of [0, 1)."""
    if not 0 <= share < 1:
        raise ValueError(f"heldout_share is a share of the documents from 0 to below 1, not {share}")


def heldout_numbers(first: int, count: int, share: float) -> npt.NDArray[np.bool_]:
    """Whether documents first..first+count-1 are held out: (count,) bool.

    One document, chosen by a hash, of every 1/share in a row: as random as an independent draw each, but the number
    held out is exact to one. The first falls among the first ten documents, so that small corpora have one.
    """
    parts = round(share * _SCALE)
    if parts == 0:
        return np.zeros(count, dtype=np.bool_)
    number = np.arange(first, first + count, dtype=np.int64)
    stratum = number * parts // _SCALE
    start = -(-stratum * _SCALE // parts)
    width = -(-(stratum + 1) * _SCALE // parts) - start
    width = np.where(stratum == 0, np.minimum(width, _SURE), width)
    chosen: npt.NDArray[np.bool_] = number - start == uniform_below(hash64(_KEY, stratum), width).astype(np.int64)
    return chosen


def text_is_heldout(text: str, share: float) -> bool:
    """Whether a document is held out by its content: the same text always falls in the same part."""
    return key_of(f"held-out\0{text}") < round(share * _SCALE) * (2**64 // _SCALE)


class Part:
    """The documents of one split, picked from consecutive runs of documents. Both splits together are everything."""

    def __init__(self, split: Split, share: float) -> None:
        """A share of 0 takes all documents of the train split, and none of the other."""
        check_share(share)
        self.split = split
        self.share = share
        self.seen = 0
        """Documents of both splits that came by, empty and bad ones too."""

    def mask(self, count: int) -> npt.NDArray[np.bool_]:
        """Which of the next `count` documents are of this part: (count,) bool."""
        held = heldout_numbers(self.seen, count, self.share)
        self.seen += count
        return held if self.split == "heldout" else ~held
