"""The documents of each shard. Where one shard ends and the next begins follows from the text alone."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split

_END = b"\xff"  # which no UTF-8 has
_HASHED = 256  # documents hashed at a time: enough for short ones, few enough for long ones
_COUNTED = 2**20  # bytes counted at a time: of a document of hundreds of megabytes there should be no copy
_LAST_INSIDE = -65
"""Bytes that go on with a character of UTF-8 are 0x80 to 0xBF: as int8, -128 to this."""


@dataclass(frozen=True)
class Group:
    """The documents of one shard."""

    split: Split
    number: int
    documents: Documents
    text_bytes: int
    first: int = 0
    """How many documents of the part stand before it."""

    @property
    def examples(self) -> int:
        """How many documents."""
        return len(next(iter(self.documents.values())))

    def text_hash(self) -> str:
        """SHA-256 of the text, field by field, each document ended by a byte that no UTF-8 has; in hexadecimal.

        Packed rows have such bytes, but say themselves where they end.
        """
        digest = hashlib.sha256()
        for joined in self._joined():
            digest.update(joined)
            digest.update(_END)
        return digest.hexdigest()

    def characters(self) -> int:
        """Characters of the text."""
        return sum(map(_characters, self._joined()))

    def _joined(self) -> Iterator[bytes]:
        for field in sorted(self.documents):
            texts = self.documents[field]
            for start in range(0, len(texts), _HASHED):
                yield _END.join(texts[start : start + _HASHED])

    def pieces(self, size: int) -> Iterator[Documents]:
        """The documents some at a time, about `size` bytes of text each."""
        sizes = sum(np.fromiter(map(len, texts), np.int64, len(texts)) for texts in self.documents.values())
        ends = np.searchsorted(np.cumsum(sizes), np.arange(size, self.text_bytes, size)) + 1
        bounds = [0, *np.unique([*ends, self.examples]).tolist()]
        for start, end in pairwise(bounds):
            yield {field: texts[start:end] for field, texts in self.documents.items()}


class _Collector:
    """Documents of one part, until they are a shard."""

    def __init__(self, split: Split, shard_bytes: int):
        self._split = split
        self._shard_bytes = shard_bytes
        self._number = self._first = 0
        self._begin()

    def _begin(self) -> None:
        self._documents: Documents = {}
        self._size = 0

    def add(self, documents: Documents) -> Iterator[Group]:
        """Takes documents in; the groups that they complete."""
        size = sum(sum(map(len, texts)) for texts in documents.values())
        if self._size + size < self._shard_bytes:
            self._take(documents, size)
            return
        for texts in zip(*documents.values(), strict=True):
            size = sum(map(len, texts))
            if size >= self._shard_bytes:
                yield from self.end()
            self._take({field: [text] for field, text in zip(documents, texts, strict=True)}, size)
            if self._size >= self._shard_bytes:
                yield from self.end()

    def _take(self, documents: Documents, size: int) -> None:
        for field, texts in documents.items():
            self._documents.setdefault(field, []).extend(texts)
        self._size += size

    def end(self) -> Iterator[Group]:
        """The group that is begun, if any."""
        if not any(self._documents.values()):
            return
        group = Group(self._split, self._number, self._documents, self._size, self._first)
        self._number += 1
        self._first += group.examples
        self._begin()
        yield group


def groups_of(parts: Iterable[tuple[Split, Documents]], shard_bytes: int) -> Iterator[Group]:
    """The groups of each part, numbered from 0: a group ends where its text reaches `shard_bytes`.

    A document that is as long by itself has a group of its own.
    """
    collectors: dict[Split, _Collector] = {}
    for split, documents in parts:
        if split not in collectors:
            collectors[split] = _Collector(split, shard_bytes)
        yield from collectors[split].add(documents)
    for collector in collectors.values():
        yield from collector.end()


def _characters(joined: bytes) -> int:
    """Characters of texts in UTF-8 with _END between them, looked at a piece at a time."""
    bytes_K = np.frombuffer(joined, np.int8)
    pieces = (bytes_K[start : start + _COUNTED] for start in range(0, len(bytes_K), _COUNTED))
    return sum(int(np.count_nonzero(piece > _LAST_INSIDE)) for piece in pieces) - joined.count(_END)
