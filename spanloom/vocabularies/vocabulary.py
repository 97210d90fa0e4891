"""What every vocabulary does: text <-> ids, with padding, end of sequence, unknown and sentinels."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain

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

    @property
    def highest_id(self) -> int:
        """The highest id that it gives; sentinels may lie above all others."""
        return max(self.size - 1, *self.sentinels) if self.sentinels else self.size - 1

    @abstractmethod
    def encode(self, text: str) -> Int32Array:
        """The ids of a text, (n,) int32, without end of sequence."""

    def encode_batch(self, texts: Sequence[str]) -> list[Int32Array]:
        """The ids of many texts, as `encode` gives them, faster."""
        return [self.encode(text) for text in texts]

    def encode_utf8(
        self, texts: Sequence[bytes], dtype: npt.DTypeLike, end: int | None = None
    ) -> tuple[npt.NDArray, npt.NDArray[np.int64]]:
        """The ids of many texts in UTF-8, one after another, as `encode` gives them; the fastest way.

        (tokens,) of `dtype`, and how many each text has, (n,) int64. `end` is put after each text that has any.
        """
        rows = [ids.tolist() for ids in self.encode_batch([text.decode("utf-8") for text in texts])]
        return flat(rows, dtype, end)

    @abstractmethod
    def decode(self, ids: Ids) -> str:
        """The text of ids, up to the first end of sequence, as SeqIO decodes: see each vocabulary."""

    @abstractmethod
    def decode_with_sentinels(self, ids: Ids) -> str:
        """The text of ids for people to read: sentinel k shown as <extra_id_k>, bad bytes as U+FFFD."""

    @abstractmethod
    def spell(self, ids: Ids) -> str:
        """Every id of a stretch inside a text for people to read, so that pieces put side by side give the whole.

        Spaces are kept at both ends; bytes that make no character read as \\xNN; ids that are no text read as
        <extra_id_k>, </s>, <pad>, <unk> or <id N>. Ids of bytes are text, even where they serve as sentinels, too.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""

    def files(self) -> dict[str, bytes]:
        """Files that a checkpoint must keep to build the vocabulary again: name -> content."""
        return {}

    def _mark(self, token: int) -> str:
        """How an id that is no text reads in `spell`."""
        if token in self.sentinels:
            return f"<extra_id_{self.sentinels.index(token)}>"
        return {self.pad_id: "<pad>", self.eos_id: "</s>", self.unk_id: "<unk>"}.get(token, f"<id {token}>")

    def _until_eos(self, ids: Ids) -> list[int]:
        """The ids as a list, cut after the first end of sequence (which is left out)."""
        cut: list[int] = []
        for token in _as_list(ids):
            if token == self.eos_id:
                break
            cut.append(token)
        return cut


def padded(size: int, multiple: int = 128) -> int:
    """Rows of an embedding for so many ids: the next multiple, as T5 has it (32,100 ids in 32,128 rows)."""
    return -(-size // multiple) * multiple


def flat(rows: Sequence[list[int]], dtype: npt.DTypeLike, end: int | None) -> tuple[npt.NDArray, npt.NDArray[np.int64]]:
    """Rows of ids one after another, and their lengths; `end` is put after each that is not empty."""
    if end is not None:
        rows = [[*row, end] if row else row for row in rows]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths


def _as_list(ids: Ids | Iterable[int]) -> list[int]:
    return [int(token) for token in (ids.tolist() if isinstance(ids, np.ndarray) else ids)]
