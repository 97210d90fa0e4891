"""A task's tokens on disk: memory-mapped, built once, rebuilt when what decides it changes, refused when damaged."""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.build import SHARD_BYTES, StoreToBuild, build_stores
from spanloom.pipeline.build_progress import Progress
from spanloom.pipeline.columns import Column
from spanloom.pipeline.durable import locked
from spanloom.pipeline.fingerprint import FORMAT, PREPROCESSING, changes, probes_changed, settings_fingerprint
from spanloom.pipeline.meta import check_file, read_meta
from spanloom.pipeline.publish import drop_leftovers, leftovers, lock_of
from spanloom.pipeline.shards import DamagedStoreError, read_shard
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.rows import ROW
from spanloom.tasks.sources import source_fingerprint
from spanloom.vocabularies.vocabulary import Vocabulary

ALWAYS_CHECKED = 128 * 2**20
"""A store of at most so many bytes is read and checked whenever it is opened for training: a third of a second."""

log = logging.getLogger(__name__)

Warn = Callable[[str], object]
"""Takes what the user must know: a display's `warn`, or else the log."""


class OtherFormatError(DamagedStoreError):
    """A store that another version of this software wrote."""


@dataclass(frozen=True)
class Store:
    """Rows of token ids. `columns` has "tokens" for span corruption, "inputs" and "targets" for supervised tasks."""

    directory: Path
    """Where its files stand."""
    meta: dict[str, Any]
    """fingerprint, counts (examples, text_bytes, characters; of each column rows, tokens, unknown, longest, histogram),
    shards, report."""
    columns: dict[str, Column]
    """Token ids by column."""

    @property
    def stream(self) -> Column:
        """The first column: the token stream of a span-corruption task."""
        return next(iter(self.columns.values()))

    def blocks(self, size: int = 2**24) -> Iterator[np.ndarray]:
        """The first column's flat stream in pieces of `size` tokens."""
        for start in range(0, self.num_tokens, size):
            yield self.stream.slice(start, min(start + size, self.num_tokens))

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
        if len(counts["columns"]) > 1:  # what metrics look at is kept beside what is learnt from
            learnt = {name: column for name, column in counts["columns"].items() if name != ROW}
            counts = {**counts, "columns": learnt}
        facts = [texts, fingerprint["shard_bytes"], fingerprint["vocabulary"], fingerprint["separator"], counts]
        facts += [fingerprint[name] for name in PREPROCESSING if name in fingerprint]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return open_store, (self.directory,)  # other processes map the same files, and copy none of it

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
        raise OtherFormatError(f"{directory} is in format {written} of stores, this version reads format {FORMAT}")
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
    dtypes = {name: np.dtype(meta.get("dtypes", {}).get(name, meta["dtype"])) for name in names}
    return Store(directory, meta, {name: Column([shard[name] for shard in shards], dtypes[name]) for name in names})


def open_or_build_all(
    task: Task,
    directories: Mapping[Split, Path],
    vocabulary: Vocabulary,
    *,
    progress: Progress | None = None,
    reports: Mapping[Split, ReadReport] | None = None,
    shard_bytes: int = SHARD_BYTES,
    checksum: bool = False,
    workers: int = 1,
    warn: Warn = log.warning,
) -> dict[Split, Store]:
    """The stores of the splits of a task in their directories, built where absent or out of date, in one pass.

    A store whose text, vocabulary, settings or version changed, or that is damaged, is built anew, and a warning says
    why. Sizes and counts are always checked, every byte where `checksum` asks for it or the store is small
    (ALWAYS_CHECKED). Of several processes that want one store, one builds and the others wait; one that builds has up
    to `workers` processes make the shards. `reports` are filled while reading; `warn` is given what the user must know.
    Raises what the source raises on bad input, StorageError on a full disk, WorkerError if a process is killed.
    """
    wanted = wanted_stores(task, directories, vocabulary, shard_bytes)
    source = source_now(task)
    found = look(task, directories, vocabulary, wanted, source, checksum)
    if all(one.store is not None and not leftovers(directories[split]) for split, one in found.items()):
        return usable(found, warn)
    with contextlib.ExitStack() as stack:
        locks = [stack.enter_context(_locked(directory, warn)) for directory in directories.values()]
        source = source_now(task)  # once more: the wait may have been long
        found = look(task, directories, vocabulary, wanted, source, checksum)
        stores = usable(found, warn)
        for split in stores:
            drop_leftovers(directories[split])
        if missing := stores_to_build(directories, wanted, found, source, reports or {}):
            build_stores(
                task,
                vocabulary,
                missing,
                shard_bytes=shard_bytes,
                workers=workers,
                locks=locks,
                progress=progress,
            )
        return {split: stores.get(split) or open_store(directory) for split, directory in directories.items()}


def _locked(directory: Path, warn: Warn) -> contextlib.AbstractContextManager[int]:
    def waiting() -> None:
        warn(f"waiting for another process that builds {directory}")

    return locked(lock_of(directory), waiting)


def usable(found: Mapping[Split, "Found"], warn: Warn) -> dict[Split, Store]:
    """Those that can be used; warns about the rest, and about these what there is to say."""
    for one in found.values():
        if one.said:
            warn(one.said)
    return {split: one.store for split, one in found.items() if one.store is not None}


@dataclass(frozen=True)
class Found:
    """What stands in a store's directory."""

    store: Store | None = None
    """The store, if it can be used."""
    said: str = ""
    """What the user must know: why it cannot, or how it is used all the same."""
    shards_usable: bool = False
    """Whether shards whose text is still the same can be taken over: nothing but the text has changed."""


Wanted = dict[Split, dict[str, Any]]
"""The fingerprint that the store of each part must have, but for the source's."""
Source = str | BadInputError | OSError
"""The fingerprint of a source's files, or why they cannot be read."""


def source_now(task: Task) -> Source:
    """The fingerprint of the task's files as they are, or why they cannot be read."""
    try:
        return source_fingerprint(task.source)
    except (BadInputError, OSError) as error:
        return error


def wanted_stores(task: Task, splits: Iterable[Split], vocabulary: Vocabulary, shard_bytes: int) -> Wanted:
    """What the stores of a task must be like."""
    return {split: settings_fingerprint(task, split, vocabulary, shard_bytes) for split in splits}


def look(
    task: Task,
    directories: Mapping[Split, Path],
    vocabulary: Vocabulary,
    wanted: Wanted,
    source: Source,
    checksum: bool,
) -> dict[Split, Found]:
    """What stands in the directories of a task's stores; where `checksum` asks for it every byte is checked."""
    return {
        split: _find(task, directory, vocabulary, wanted[split], source, checksum)
        for split, directory in directories.items()
    }


def stores_to_build(
    directories: Mapping[Split, Path],
    wanted: Wanted,
    found: Mapping[Split, Found],
    source: Source,
    reports: Mapping[Split, ReadReport],
) -> list[StoreToBuild]:
    """The stores that are missing. Raises why the source cannot be read, if one is."""
    missing = [split for split, one in found.items() if one.store is None]
    if missing and isinstance(source, Exception):
        raise source
    return [
        StoreToBuild(
            split,
            directories[split],
            {**wanted[split], "source": source},
            found[split].shards_usable,
            reports.get(split, ReadReport()),
        )
        for split in missing
    ]


def _find(
    task: Task, directory: Path, vocabulary: Vocabulary, wanted: dict[str, Any], source: Source, checksum: bool
) -> Found:
    def outdated(reason: str, *, shards_usable: bool = False) -> Found:
        return Found(said=f"the store {directory} is built anew: {reason}", shards_usable=shards_usable)

    try:
        store = open_store(directory)
        if checksum or sum(entry["bytes"] for entry in store.meta["shards"]) <= ALWAYS_CHECKED:
            store.verify()
    except FileNotFoundError:
        return Found()
    except OtherFormatError as error:
        return outdated(str(error))
    except (DamagedStoreError, KeyError, TypeError) as error:
        return outdated(f"it is damaged ({error})")
    stored = dict(store.meta["fingerprint"])
    stored_source = stored.pop("source")
    if found := changes(stored, wanted):
        return outdated("changed: " + "; ".join(found))
    probes = store.meta["probes"]
    if count := probes_changed(task, vocabulary, probes):
        return outdated(f"changed: tokenization ({count} of {len(probes)} probes give other ids)")
    if isinstance(source, Exception):
        unread = f"the text of {directory} can no longer be read ({source}); the store built from it is used"
        return Found(store, said=unread)
    if found := changes({"source": stored_source}, {"source": source}):
        return outdated("changed: " + "; ".join(found), shards_usable=True)
    return Found(store)
