"""Shards of a spool as a store: one by one, and all that are on disk for those who count what there is."""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spanloom.pipeline.columns import Column
from spanloom.pipeline.fingerprint import PREPROCESSING
from spanloom.pipeline.meta import check_file, total_counts
from spanloom.pipeline.shards import DamagedStoreError, read_shard
from spanloom.pipeline.spool.index import PROBES, SpoolIndex
from spanloom.pipeline.store import Store
from spanloom.tasks.read_report import ReadReport, plural


@dataclass
class StreamReport(ReadReport):
    """What there is of a stream."""

    shards: int = 0
    """Shards made so far."""
    kept: int = 0
    """Those of them that are on disk."""

    def describe(self) -> str:
        """One line: how much was read, and how much of it is kept."""
        return (
            f"a stream: {plural(self.documents, self.noun)} so far in {plural(self.shards, 'shard')}, {self.kept:,} on "
            "disk; more are made as the run needs them"
        )


_TRIES = 5


@dataclass(frozen=True)
class SpooledStore(Store):
    """The shards of a spool that are on disk."""

    index: SpoolIndex

    @property
    def content(self) -> str:
        """See `content_of`."""
        return content_of(self.index)

    @property
    def report(self) -> ReadReport:
        """How much there is."""
        return report_of(self.index)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.directory,)


def store_of(index: SpoolIndex, entries: Sequence[dict[str, Any]]) -> Store:
    """Some shards of a spool as a store. Raises DamagedStoreError for one that is not what was written."""
    return Store(index.directory, _meta(index, entries), _columns(index, entries))


def spooled(index: SpoolIndex) -> SpooledStore:
    """All shards that are on disk as a store, with what is known of the first rows.

    Raises DamagedStoreError for one that is not what was written.
    """
    for _ in range(_TRIES):
        entries = list(_entries(index))
        meta = {**_meta(index, entries), "fingerprint": index.fingerprint, "probes": probes_of(index)}
        try:
            return SpooledStore(index.directory, meta, _columns(index, entries), index)
        except FileNotFoundError as error:
            gone = error.filename  # a run that trains drops shards that no checkpoint needs
    raise DamagedStoreError(f"{gone} is gone, and its description is there")


def probes_of(index: SpoolIndex) -> list[dict[str, Any]]:
    """The first rows with a hash of the ids they gave; none before there is a shard."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        probes: list[dict[str, Any]] = json.loads((index.directory / PROBES).read_bytes())
        return probes
    return []


def report_of(index: SpoolIndex) -> StreamReport:
    """How much there is of a stream."""
    return StreamReport(documents=index.last.place.kept, noun="row", shards=index.last.shard, kept=len(index.kept()))


def content_of(index: SpoolIndex, shards: int | None = None) -> str:
    """What is learnt from, in a form that `same_content` compares: a hash of all that decides it, and of the rows of so
    many shards (None: all made so far).
    """
    decides = {name: index.fingerprint[name] for name in _DECIDES if name in index.fingerprint}
    whole = [decides, index.fingerprint["source_settings"]["shard_rows"], index.bound]
    facts = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    mark = index.last if shards is None else index.mark(shards)
    return f"stream:{facts}:{mark.shard}:{mark.chain}"


_DECIDES = ("shard_bytes", "vocabulary", "separator", "chunks", *PREPROCESSING)


def same_content(index: SpoolIndex, content: str) -> bool:
    """Whether a content of `content_of` is one of this spool, now or when it had fewer shards."""
    try:
        _, facts, shards, _ = content.split(":")
        number = int(shards)
    except ValueError:
        return False
    if not index.base.shard <= number <= index.last.shard:
        return facts == content_of(index).split(":")[1]  # the rows are compared where shards are made again
    return content == content_of(index, number)


def verify(index: SpoolIndex, *, checksum: bool) -> None:
    """Deletes shards that are damaged: they are made again when they are needed."""
    for shard in index.kept():
        path, entry_path = index.paths(shard)
        try:
            check_file(path, json.loads(entry_path.read_bytes()), checksum=checksum)
        except (OSError, ValueError, KeyError, TypeError):
            entry_path.unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def _entries(index: SpoolIndex) -> Iterator[dict[str, Any]]:
    """Descriptions of the shards that are on disk and whole."""
    for shard in index.kept():
        path, entry_path = index.paths(shard)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(entry_path.read_bytes())
            check_file(path, entry, checksum=False)
            yield entry


def _meta(index: SpoolIndex, entries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"shards": list(entries), "counts": total_counts(entries, index.dtypes)}


def _columns(index: SpoolIndex, entries: Sequence[dict[str, Any]]) -> dict[str, Column]:
    shards = []
    for entry in entries:
        path = index.directory / "store" / entry["file"]
        shards.append(read_shard(path))
        for name, counts in entry["columns"].items():
            column = shards[-1].get(name)
            if column is None or (len(column.offsets) - 1, len(column.values)) != (counts["rows"], counts["tokens"]):
                raise DamagedStoreError(f"{path} does not hold the {counts['tokens']} {name} that were written")
    return {name: Column([shard[name] for shard in shards], np.dtype(dtype)) for name, dtype in index.dtypes.items()}


def _opened(directory: Any) -> SpooledStore:
    return spooled(SpoolIndex(directory))
