"""Documents or pairs that a store has more than once, to the last token."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.facts.effort import Effort, spread
from spanloom.pipeline.facts.token_columns import token_columns
from spanloom.pipeline.shards import Ragged
from spanloom.pipeline.store import Store
from spanloom.tasks.randomness import UInt64Array, hash64

_ENDS = 8  # tokens of either end that choose what is looked at


@dataclass(frozen=True)
class Duplicates:
    """What was found."""

    rows: int
    """Rows that are not empty and were compared."""
    copies: int
    """Those of them that repeat another one."""
    is_sample: bool
    """Whether there are more rows."""
    commonest: tuple[np.ndarray, ...] = ()
    """The tokens of the row found most often, by column; nothing if none is found twice, or rows hold no tokens."""
    times: int = 0
    """How often that is found."""

    @property
    def share(self) -> float:
        """Share of the rows that repeat another one."""
        return self.copies / max(self.rows, 1)


def duplicates(store: Store, effort: Effort) -> Duplicates:
    """Compares the rows of a store by their hashes.

    Of many rows those are compared whose length and ends have certain hashes: all copies of a row or none, so that the
    share is the same. Of many shards some are read, and copies among others are missed.
    """
    tokens = token_columns(store)
    columns = list((tokens or store.columns).values())
    chosen = spread(len(columns[0].shards), effort.shards)
    shards = [[column.shards[number] for column in columns] for number in chosen]
    rows = sum(len(parts[0].offsets) - 1 for parts in shards)
    one_in = max(-(-rows // effort.rows), 1)
    seen: dict[bytes, int] = {}
    where: dict[bytes, tuple[int, int]] = {}
    for number, parts in enumerate(shards):
        for row, digest in _digests(parts, one_in):
            seen[digest] = seen.get(digest, 0) + 1
            where.setdefault(digest, (number, row))
    compared = sum(seen.values())
    is_sample = one_in > 1 or len(shards) < len(columns[0].shards)
    if compared == len(seen):
        return Duplicates(compared, 0, is_sample)
    most = max(seen, key=lambda digest: seen[digest])
    number, row = where[most]
    commonest = tuple(_row(part, row) for part in shards[number]) if tokens else ()
    return Duplicates(compared, compared - len(seen), is_sample, commonest, seen[most])


def _digests(parts: list[Ragged], one_in: int) -> Iterator[tuple[int, bytes]]:
    """(row, hash) of those rows of a shard that are compared."""
    lengths = sum(np.diff(part.offsets) for part in parts)
    rows = np.flatnonzero(lengths)
    if one_in > 1:
        rows = rows[_keys(parts, rows) % np.uint64(one_in) == 0]
    for row in rows.tolist():
        digest = hashlib.blake2b(digest_size=16)
        for part in parts:
            tokens = _row(part, row)
            digest.update(b"%d:" % len(tokens) + tokens.tobytes())
        yield row, digest.digest()


def _keys(parts: list[Ragged], rows: np.ndarray) -> UInt64Array:
    """A hash of the lengths and ends of rows: alike where the rows are alike."""
    key = np.zeros(len(rows), np.uint64)
    for part in parts:
        first, last = part.offsets[rows], part.offsets[rows + 1] - 1
        key = hash64(key, last - first)
        for step in range(_ENDS if len(part.values) else 0):
            for places in (np.minimum(first + step, last), np.maximum(last - step, first)):
                ids = part.values[np.clip(places, 0, len(part.values) - 1)]
                key = hash64(key, np.where(last < first, 0, ids))
    return key


def _row(part: Ragged, row: int) -> np.ndarray:
    return part.values[part.offsets[row] : part.offsets[row + 1]]
