"""What every vocabulary does: text <-> ids, with padding, end of sequence, unknown and sentinels."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Ids = Sequence[int] | npt.NDArray[np.integer]


class VocabularyError(ValueError):
    """A vocabulary that cannot be used; the message names the cause and the fix."""


class Vocabulary(ABC):
    """Text to ids and back. Immutable; the same ids from the same settings on every machine."""

    pad_id: int = 0
    """Fills rows; never text."""
    eos_id: int = 1
    """Ends a sequence."""
    unk_id: int = 2
    """Stands for what the vocabulary lacks."""
    size: int
    """Number of ids, sentinels included; an embedding may have more rows."""
    sentinels: tuple[int, ...]
    """Ids that stand for masked spans, in order of use."""

    @abstractmethod
    def encode(self, text: str) -> Int32Array:
        """The ids of a text, (n,) int32, without end of sequence."""

    def encode_batch(self, texts: Sequence[str]) -> list[Int32Array]:
        """The ids of many texts, as `encode` gives them, faster."""
        return [self.encode(text) for text in texts]

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """The text of ids, up to the first end of sequence, as SeqIO decodes: see each vocabulary."""

    @abstractmethod
    def decode_with_sentinels(self, ids: Ids) -> str:
        """The text of ids for people to read: sentinel k shown as <extra_id_k>, bad bytes as U+FFFD."""

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""

    def files(self) -> dict[str, bytes]:
        """Files that a checkpoint must keep to build the vocabulary again: name -> content."""
        return {}

    def _until_eos(self, ids: Ids) -> list[int]:
        """The ids as a list, cut after the first end of sequence (which is left out)."""
        cut: list[int] = []
        for token in _as_list(ids):
            if token == self.eos_id:
                break
            cut.append(token)
        return cut


def _as_list(ids: Ids | Iterable[int]) -> list[int]:
    return [int(token) for token in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
