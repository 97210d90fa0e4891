"""Building a store: shard after shard in bounded memory, resumable from the last whole shard, published by a rename.

Where one shard ends and the next begins follows from the text alone (a shard closes when its text reaches
`shard_bytes`), so any number of processes that build them make the same bytes. While a build runs its files stand in
`<store>.building`, which nothing opens as a store:

    <store>.building/fingerprint.json   what is being built
    <store>.building/entries/           one description for each whole shard
    <store>.building/store/             the shards, and in the end meta.json; renamed to <store>
"""

import functools
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.durable import StorageError, sync_directory, write_file
from spanloom.pipeline.fingerprint import make_probes
from spanloom.pipeline.meta import check_file, read_meta, shard_entry, total_counts, write_meta
from spanloom.pipeline.rows import Example, columns_of, encode_rows, fields_of
from spanloom.pipeline.shards import DamagedStoreError, Ragged, ragged, read_shard, token_dtype, write_shard
from spanloom.settings.task import Task
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import Split, read_examples
from spanloom.vocabularies.vocabulary import Vocabulary

SHARD_BYTES = 32 * 2**20
_ENCODE_BYTES = 2**20
_RECHECKED_EXAMPLES = 16
_OWN_FILES = re.compile(r"(shard-\d+\.arrow|meta\.json)(\.part)?")


@dataclass(frozen=True)
class BuildProgress:
    """How far a build is; given to the progress callback."""

    task: str
    """Name of the task."""
    split: str
    """train or heldout."""
    examples: int
    """Documents or pairs read."""
    text_bytes: int
    """Bytes of text (UTF-8) tokenized, or found in shards that were whole already."""
    tokens: int
    """Tokens in all columns so far."""
    shards: int
    """Whole shards."""
    finished: bool
    """Whether the store is done."""


Progress = Callable[[BuildProgress], object]


@dataclass(frozen=True)
class _Group:
    """The examples of one shard."""

    number: int
    examples: list[Example]
    text_bytes: int
    text_hash: str


class StoreBuilder:
    """Builds the store of one split of one task. Hold the store's lock while using it."""

    def __init__(
        self,
        task: Task,
        split: Split,
        directory: Path,
        vocabulary: Vocabulary,
        fingerprint: dict[str, Any],
        *,
        shard_bytes: int,
        report: ReadReport,
        progress: Progress | None,
        keep_shards: bool,
    ):
        self.task = task
        self.split = split
        self.directory = directory
        self.vocabulary = vocabulary
        self.fingerprint = fingerprint
        self.shard_bytes = shard_bytes
        self.report = report
        self.progress = progress
        self.keep_shards = keep_shards
        self.building = _building(directory)
        self.dtype = token_dtype(vocabulary.size)
        self._examples = self._text_bytes = self._tokens = self._shards = 0

    def build(self) -> None:
        """Builds and publishes. Raises what the source raises on bad input, and StorageError on a full disk."""
        refuse_foreign_directory(self.directory)
        self._prepare()
        entries, probes = [], []
        for group in _groups(read_examples(self.task.source, self.split, self.report), self.task, self.shard_bytes):
            if group.number == 0:
                probes = make_probes(self.task, self.vocabulary, group.examples)
            entries.append(self._finished_shard(group) or self._make_shard(group))
            self._shards += 1
        meta = {
            "fingerprint": self.fingerprint,
            "dtype": self.dtype.name,
            "counts": total_counts(entries, columns_of(self.task)),
            "shards": entries,
            "probes": probes,
            "report": self.report.to_dict(),
        }
        self._drop_other_files({entry["file"] for entry in entries})
        write_meta(self.building / "store", meta)
        publish(self.building, self.directory)
        self._tell(finished=True)

    def _prepare(self) -> None:
        """Keeps what an interrupted build of the very same store left, and nothing else."""
        wanted = json.dumps(self.fingerprint, sort_keys=True).encode()
        known = self.building / "fingerprint.json"
        if not (known.is_file() and known.read_bytes() == wanted):
            shutil.rmtree(self.building, ignore_errors=True)
        for name in ("store", "entries"):
            (self.building / name).mkdir(parents=True, exist_ok=True)
        write_file(known, lambda file: file.write(wanted))
        if self.keep_shards:
            self._take_over_old_shards()

    def _take_over_old_shards(self) -> None:
        """Offers the shards of the store that is replaced: those whose text is still the same need no new work."""
        try:
            old = read_meta(self.directory)
            if _without_source(old["fingerprint"]) != _without_source(self.fingerprint):
                return
            for number, entry in enumerate(old["shards"]):
                path, entry_path = self._paths(number)
                if path.exists() or not (self.directory / entry["file"]).exists():
                    continue
                os.link(self.directory / entry["file"], path)
                write_file(entry_path, functools.partial(_write_json, entry))
        except (OSError, DamagedStoreError, KeyError, TypeError):
            return  # nothing is lost but time: each shard is checked before it is used, and made if it is not there

    def _paths(self, number: int) -> tuple[Path, Path]:
        name = f"shard-{number:05d}"
        return self.building / "store" / f"{name}.arrow", self.building / "entries" / f"{name}.json"

    def _finished_shard(self, group: _Group) -> dict[str, Any] | None:
        """The description of a whole shard of these very examples that an interrupted build left."""
        path, entry_path = self._paths(group.number)
        try:
            entry = json.loads(entry_path.read_bytes())
            check_file(path, entry, checksum=True)
            same_text = entry["text_sha256"] == group.text_hash
            if not same_text or not self._gives_same_rows(read_shard(path), group.examples):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self._count(len(group.examples), group.text_bytes, sum(c["tokens"] for c in entry["columns"].values()))
        return entry

    def _gives_same_rows(self, columns: dict[str, Ragged], examples: Sequence[Example]) -> bool:
        again = encode_rows(self.task, self.vocabulary, examples[:_RECHECKED_EXAMPLES])
        return all(
            np.array_equal(row, columns[name].values[columns[name].offsets[i] : columns[name].offsets[i + 1]])
            for name, rows in again.items()
            for i, row in enumerate(rows)
        )

    def _make_shard(self, group: _Group) -> dict[str, Any]:
        path, entry_path = self._paths(group.number)
        entry_path.unlink(missing_ok=True)
        columns = self._encode(group)
        write_shard(path, columns)
        entry = shard_entry(
            path,
            columns,
            self.vocabulary.unk_id,
            examples=len(group.examples),
            text_bytes=group.text_bytes,
            text_hash=group.text_hash,
        )
        write_file(entry_path, functools.partial(_write_json, entry))
        return entry

    def _encode(self, group: _Group) -> dict[str, Ragged]:
        """Tokenizes in pieces of about a megabyte, so that no more than that stands in memory as int32."""
        parts: dict[str, list[Ragged]] = {name: [] for name in columns_of(self.task)}
        for examples, text_bytes in _pieces(group.examples, fields_of(self.task)):
            rows = encode_rows(self.task, self.vocabulary, examples)
            for name, column in rows.items():
                parts[name].append(ragged(column, self.dtype))
            self._count(len(examples), text_bytes, sum(len(row) for column in rows.values() for row in column))
        return {name: _joined(pieces, self.dtype) for name, pieces in parts.items()}

    def _drop_other_files(self, names: set[str]) -> None:
        for path in (self.building / "store").iterdir():
            if path.name not in names:
                path.unlink()

    def _count(self, examples: int, text_bytes: int, tokens: int) -> None:
        self._examples += examples
        self._text_bytes += text_bytes
        self._tokens += tokens
        self._tell(finished=False)

    def _tell(self, *, finished: bool) -> None:
        if self.progress:
            counts = (self._examples, self._text_bytes, self._tokens, self._shards)
            self.progress(BuildProgress(self.task.name, self.split, *counts, finished))


def publish(building: Path, directory: Path) -> None:
    """Puts the finished store in its place. A kill in between leaves no store, never half a one."""
    stale = _stale(directory)
    shutil.rmtree(stale, ignore_errors=True)
    if directory.exists():
        directory.rename(stale)
    (building / "store").rename(directory)
    sync_directory(directory.parent)
    drop_leftovers(directory)


def leftovers(directory: Path) -> list[Path]:
    """What builds of the store leave behind if killed: the one under way, and the store that it was replacing."""
    return [path for path in (_building(directory), _stale(directory)) if path.exists()]


def drop_leftovers(directory: Path) -> None:
    """Removes them. Hold the store's lock, and have the store whole in its place."""
    for path in leftovers(directory):
        shutil.rmtree(path, ignore_errors=True)


def _building(directory: Path) -> Path:
    return directory.with_name(directory.name + ".building")


def _stale(directory: Path) -> Path:
    return directory.with_name(directory.name + ".stale")


def refuse_foreign_directory(directory: Path) -> None:
    """Raises StorageError if the directory holds anything but the files of a store, which a build would replace."""
    if not directory.exists():
        return
    foreign = [path.name for path in directory.iterdir() if not _OWN_FILES.fullmatch(path.name)]
    if foreign:
        raise StorageError(
            f"{directory} holds files that are no part of a store ({', '.join(sorted(foreign)[:3])}) and is left as "
            "it is: remove it or choose another directory"
        )


def _write_json(data: Any, file: BufferedWriter) -> None:
    file.write(json.dumps(data).encode())


def _without_source(fingerprint: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fingerprint.items() if key != "source"}


def _groups(examples: Iterable[Example], task: Task, shard_bytes: int) -> Iterator[_Group]:
    number, group, size, digest = 0, [], 0, hashlib.sha256()
    for example in examples:
        for field in fields_of(task):
            text = example.get(field, "").encode("utf-8", "surrogatepass")
            digest.update(len(text).to_bytes(8, "little"))
            digest.update(text)
            size += len(text)
        group.append(example)
        if size >= shard_bytes:
            yield _Group(number, group, size, digest.hexdigest())
            number, group, size, digest = number + 1, [], 0, hashlib.sha256()
    if group:
        yield _Group(number, group, size, digest.hexdigest())


def _pieces(examples: Sequence[Example], fields: Sequence[str]) -> Iterator[tuple[Sequence[Example], int]]:
    start = size = 0
    for end, example in enumerate(examples, 1):
        size += sum(len(example.get(field, "").encode("utf-8", "surrogatepass")) for field in fields)
        if size >= _ENCODE_BYTES or end == len(examples):
            yield examples[start:end], size
            start, size = end, 0


def _joined(pieces: Sequence[Ragged], dtype: np.dtype) -> Ragged:
    starts = np.cumsum([0, *(len(piece.values) for piece in pieces)])
    offsets = [piece.offsets[:-1] + start for piece, start in zip(pieces, starts, strict=False)]
    return Ragged(
        np.concatenate([np.empty(0, dtype), *(piece.values for piece in pieces)]),
        np.concatenate([*offsets, starts[-1:]]).astype(np.int64, copy=False),
    )
