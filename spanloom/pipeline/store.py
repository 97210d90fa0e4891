"""A task's tokens on disk: memory-mapped, built once, rebuilt when what decides it changes, refused when damaged."""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.build import SHARD_BYTES, Progress, StoreBuilder, drop_leftovers, leftovers
from spanloom.pipeline.columns import Column
from spanloom.pipeline.durable import locked
from spanloom.pipeline.fingerprint import FORMAT, changes, probes_changed, settings_fingerprint
from spanloom.pipeline.meta import check_file, read_meta
from spanloom.pipeline.shards import DamagedStoreError, read_shard
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import Split, source_fingerprint
from spanloom.vocabularies.vocabulary import Vocabulary

ALWAYS_CHECKED = 128 * 2**20
"""A store of at most so many bytes is read and checked whenever it is opened for training: a third of a second."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Store:
    """Rows of token ids. `columns` has "tokens" for span corruption, "inputs" and "targets" for supervised tasks."""

    directory: Path
    """Where its files stand."""
    meta: dict[str, Any]
    """fingerprint, counts (examples, text_bytes; of each column rows, tokens, unknown, longest, histogram), shards,
    report."""
    columns: dict[str, Column]
    """Token ids by column."""

    @property
    def stream(self) -> Column:
        """The first column: the token stream of a span-corruption task."""
        return next(iter(self.columns.values()))

    @property
    def tokens(self) -> np.ndarray:
        """The first column as one flat array: memory-mapped if the store has one shard, else a copy in memory.

        Use `blocks` for corpora of any size.
        """
        return self.stream.to_numpy()

    def blocks(self, size: int = 2**24) -> Iterator[np.ndarray]:
        """The first column's flat stream in pieces of `size` tokens."""
        for start in range(0, self.num_tokens, size):
            yield self.stream.slice(start, min(start + size, self.num_tokens))

    @property
    def offsets(self) -> np.ndarray:
        """Where each row of the first column starts, (rows + 1,) int64."""
        return self.stream.offsets()

    @property
    def num_rows(self) -> int:
        """Documents or pairs."""
        return self.stream.num_rows

    @property
    def num_tokens(self) -> int:
        """Tokens of the first column, separators included."""
        return self.stream.num_tokens

    @property
    def text_bytes(self) -> int:
        """Bytes of text (UTF-8) that were tokenized."""
        return int(self.meta["counts"]["text_bytes"])

    @property
    def report(self) -> ReadReport:
        """What was read, skipped and repaired when the store was built."""
        return ReadReport.from_dict(self.meta["report"])

    @property
    def content(self) -> str:
        """SHA-256 of the text, the vocabulary and how documents are joined: what a run learns from, wherever its
        files stand. A checkpoint that keeps it can tell on resume whether the data are still the same.
        """
        fingerprint, counts = self.meta["fingerprint"], self.meta["counts"]
        texts = [entry["text_sha256"] for entry in self.meta["shards"]]
        facts = [texts, fingerprint["shard_bytes"], fingerprint["vocabulary"], fingerprint["separator"], counts]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def verify(self) -> None:
        """Reads every byte; raises DamagedStoreError if one is not as it was written."""
        for entry in self.meta["shards"]:
            check_file(self.directory / entry["file"], entry, checksum=True)


def open_store(directory: Path, *, checksum: bool = False) -> Store:
    """Opens a store as it stands, whatever it was built from.

    Sizes and counts are always checked, checksums on request. Raises FileNotFoundError if there is no whole store,
    DamagedStoreError if a file is missing, truncated or altered.
    """
    meta = read_meta(directory)
    if (written := meta["fingerprint"]["format"]) != FORMAT:
        raise DamagedStoreError(f"{directory} is in format {written} of stores, this version reads format {FORMAT}")
    names = meta["fingerprint"]["columns"]
    shards = []
    for entry in meta["shards"]:
        path = directory / entry["file"]
        check_file(path, entry, checksum=checksum)
        shards.append(read_shard(path))
        for name in names:
            column, counts = shards[-1].get(name), entry["columns"][name]
            if column is None or (len(column.offsets) - 1, len(column.values)) != (counts["rows"], counts["tokens"]):
                raise DamagedStoreError(f"{path} does not hold the {counts['tokens']} {name} that were written")
    dtype = np.dtype(meta["dtype"])
    return Store(directory, meta, {name: Column([shard[name] for shard in shards], dtype) for name in names})


def open_or_build(
    task: Task,
    split: Split,
    directory: Path,
    vocabulary: Vocabulary,
    *,
    progress: Progress | None = None,
    report: ReadReport | None = None,
    shard_bytes: int = SHARD_BYTES,
    checksum: bool = False,
) -> Store:
    """The store of one split ("train" or "heldout") of a task in `directory`, built if it is absent or out of date.

    A store whose text, vocabulary, settings or version changed, or that is damaged, is built anew, and a warning says
    why. Sizes and counts are always checked, every byte where `checksum` asks for it or the store is small
    (ALWAYS_CHECKED). Of several processes that want one store, one builds and the others wait. `report` is filled while
    reading.
    Raises what the source raises on bad input, StorageError on a full disk.
    """
    wanted = settings_fingerprint(task, split, vocabulary, shard_bytes)
    found = _find(task, directory, vocabulary, wanted, checksum)
    if found.store is not None and not leftovers(directory):
        return found.store

    def waiting() -> None:
        log.warning("waiting for another process that builds %s", directory)

    with locked(directory.with_name(directory.name + ".lock"), waiting):
        if (found := _find(task, directory, vocabulary, wanted, checksum)).store is not None:
            drop_leftovers(directory)
            return found.store
        if found.reason:
            log.warning("the store %s is built anew: %s", directory, found.reason)
        fingerprint = {**wanted, "source": source_fingerprint(task.source)}
        builder = StoreBuilder(
            task,
            split,
            directory,
            vocabulary,
            fingerprint,
            shard_bytes=shard_bytes,
            report=report if report is not None else ReadReport(),
            progress=progress,
            keep_shards=found.shards_usable,
        )
        builder.build()
        return open_store(directory)


@dataclass(frozen=True)
class _Found:
    """What stands in a store's directory."""

    store: Store | None = None
    """The store, if it can be used."""
    reason: str = ""
    """Why it cannot; empty if there is none."""
    shards_usable: bool = False
    """Whether shards whose text is still the same can be taken over: nothing but the text has changed."""


def _find(task: Task, directory: Path, vocabulary: Vocabulary, wanted: dict[str, Any], checksum: bool) -> _Found:
    try:
        store = open_store(directory)
        if checksum or sum(entry["bytes"] for entry in store.meta["shards"]) <= ALWAYS_CHECKED:
            store.verify()
    except FileNotFoundError:
        return _Found()
    except (DamagedStoreError, KeyError, TypeError) as error:
        return _Found(reason=f"it is damaged ({error})")
    stored = dict(store.meta["fingerprint"])
    stored_source = stored.pop("source")
    if found := changes(stored, wanted):
        return _Found(reason="changed: " + "; ".join(found))
    probes = store.meta["probes"]
    if count := probes_changed(task, vocabulary, probes):
        return _Found(reason=f"changed: tokenization ({count} of {len(probes)} probes give other ids)")
    if found := _source_changes(task, directory, stored_source):
        return _Found(reason="changed: " + "; ".join(found), shards_usable=True)
    return _Found(store)


def _source_changes(task: Task, directory: Path, stored_source: str) -> list[str]:
    try:
        return changes({"source": stored_source}, {"source": source_fingerprint(task.source)})
    except (BadInputError, OSError) as error:
        log.warning("the text of %s can no longer be read (%s); the store built from it is used", directory, error)
        return []
