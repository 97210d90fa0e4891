"""UTF-8 bytes as ByT5 has them (Xue et al. 2022): byte b is id b + 3, and no text is unknown."""

import hashlib
from collections.abc import Sequence
from itertools import groupby

import numpy as np
import numpy.typing as npt

from spanloom.settings.vocabulary import MOST_EXTRA_IDS, Bytes
from spanloom.vocabularies.vocabulary import Ids, Int32Array, Vocabulary, VocabularyError

_OFFSET = 3
_BASE_SIZE = 256 + _OFFSET


class ByteVocabulary(Vocabulary):
    """Bytes, and sentinels by one of three conventions, told apart in `spanloom.settings.vocabulary.Bytes`."""

    def __init__(self, settings: Bytes) -> None:
        """Raises VocabularyError for a number of extra ids that the convention cannot have."""
        self.settings = settings
        self.size, self.sentinels = _size_and_sentinels(settings)
        self._sentinel_numbers = {token: number for number, token in enumerate(self.sentinels)}

    def encode(self, text: str) -> Int32Array:
        """UTF-8 bytes + 3. Raises UnicodeEncodeError for lone surrogates, which no UTF-8 text has."""
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32) + np.int32(_OFFSET)

    def encode_batch(self, texts: Sequence[str]) -> list[Int32Array]:
        """As `encode`, with one pass over all bytes."""
        pieces = [text.encode("utf-8") for text in texts]
        if not pieces:
            return []
        ids = np.frombuffer(b"".join(pieces), dtype=np.uint8).astype(np.int32) + np.int32(_OFFSET)
        return np.split(ids, np.cumsum([len(piece) for piece in pieces])[:-1])

    def encode_utf8(
        self, texts: Sequence[bytes], dtype: npt.DTypeLike, end: int | None = None
    ) -> tuple[npt.NDArray, npt.NDArray[np.int64]]:
        """As `encode_batch`: one pass over all bytes, with room for `end` after each text."""
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        if end is None:
            return self._shifted(b"".join(texts), dtype, room=0), lengths
        lengths += lengths > 0
        ids = self._shifted(b"\0".join(filter(None, texts)), dtype, room=1)
        ids[np.cumsum(lengths[lengths > 0]) - 1] = end
        return ids[: int(lengths.sum())], lengths

    @staticmethod
    def _shifted(text: bytes, dtype: npt.DTypeLike, room: int) -> npt.NDArray:
        ids = np.empty(len(text) + room, dtype)
        np.add(np.frombuffer(text, np.uint8), _OFFSET, out=ids[: len(text)], dtype=dtype)
        return ids

    def decode(self, ids: Ids) -> str:
        """Text up to the first end of sequence; ids that are no byte are dropped, and so is invalid UTF-8 (SeqIO)."""
        return self._bytes_of(self._until_eos(ids)).decode("utf-8", errors="ignore")

    def decode_with_sentinels(self, ids: Ids) -> str:
        """As `decode`, but sentinels shown as <extra_id_k> and invalid UTF-8 as the replacement character."""
        shown = []
        for sentinel, group in groupby(self._until_eos(ids), key=self._sentinel_numbers.get):
            tokens = list(group)
            if sentinel is None:
                shown.append(self._bytes_of(tokens).decode("utf-8", errors="replace"))
            else:
                shown.append(f"<extra_id_{sentinel}>" * len(tokens))
        return "".join(shown)

    def spell(self, ids: Ids) -> str:
        """Bytes as UTF-8, those that make no character as \\xNN, and marks by their names."""
        shown = []
        for is_text, group in groupby(map(int, ids), key=lambda token: _OFFSET <= token < _BASE_SIZE):
            tokens = list(group)
            text = self._bytes_of(tokens).decode("utf-8", errors="backslashreplace")
            shown.append(text if is_text else "".join(map(self._mark, tokens)))
        return "".join(shown)

    def fingerprint(self) -> str:
        """SHA-256 of the convention and its sentinels."""
        return hashlib.sha256(f"bytes+{_OFFSET} {self.size} {self.sentinels}".encode()).hexdigest()

    def _bytes_of(self, tokens: list[int]) -> bytes:
        return bytes(token - _OFFSET for token in tokens if _OFFSET <= token < _BASE_SIZE)


def _size_and_sentinels(settings: Bytes) -> tuple[int, tuple[int, ...]]:
    if settings.sentinels == "google":
        count = settings.google_sentinels
        if not 0 <= count <= 256:
            raise VocabularyError(f"google_sentinels={count} is no number of bytes: 11 of them can never be text")
        return _BASE_SIZE, tuple(range(_BASE_SIZE - 1, _BASE_SIZE - 1 - count, -1))
    if not 0 <= settings.extra_ids <= MOST_EXTRA_IDS:
        raise VocabularyError(f"extra_ids={settings.extra_ids}: must be from 0 to {MOST_EXTRA_IDS:,}; ByT5 has 125")
    size = _BASE_SIZE + settings.extra_ids
    extra = range(_BASE_SIZE, size)
    if settings.sentinels == "huggingface":
        return size, tuple(extra)
    if settings.sentinels == "seqio":
        return size, tuple(reversed(extra))
    raise VocabularyError(f"sentinels={settings.sentinels!r} is unknown: huggingface, google or seqio")
