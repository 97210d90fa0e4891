"""Building stores: shard after shard in bounded memory, resumable from the last whole shard, published by a rename.

All parts of a task are built in one pass over its text. Where one shard ends and the next begins follows from the text
alone (`spanloom.pipeline.groups`), so any number of processes that build them make the same bytes. While a build runs
its files stand beside the store, where nothing opens them as one (`spanloom.pipeline.publish`).
"""

import json
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.pipeline.build_workers import make_shards
from spanloom.pipeline.durable import write_file
from spanloom.pipeline.fingerprint import make_probes
from spanloom.pipeline.groups import Group, groups_of
from spanloom.pipeline.meta import read_meta, total_counts, write_meta
from spanloom.pipeline.publish import building, publish, refuse_foreign_directory
from spanloom.pipeline.shard_maker import Count, ShardEntry, ShardMaker
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport, plural
from spanloom.tasks.sources import source_bytes
from spanloom.tasks.task_rows import read_task
from spanloom.vocabularies.vocabulary import Vocabulary

SHARD_BYTES = 32 * 2**20


@dataclass(frozen=True)
class BuildProgress:
    """How far a build is; given to the progress callback. All numbers are over all parts and processes."""

    task: str
    """Name of the task."""
    split: str
    """train, heldout or both: "train and heldout"."""
    examples: int
    """Documents or pairs read."""
    text_bytes: int
    """Bytes of text (UTF-8) tokenized, or found in shards that were whole already."""
    tokens: int
    """Tokens in all columns so far."""
    shards: int
    """Whole shards."""
    finished: bool
    """Whether the stores are done."""
    bytes_per_second: float = 0.0
    """Of text, that which was found done not counted."""
    tokens_per_second: float = 0.0
    """Likewise."""
    seconds_left: float = math.nan
    """At this pace; NaN where nobody knows."""


Progress = Callable[[BuildProgress], object]


@dataclass(frozen=True)
class StoreToBuild:
    """One store to build: that of one part of a task's data."""

    split: Split
    directory: Path
    fingerprint: dict[str, Any]
    """What decides its content."""
    keep_shards: bool
    """Whether shards of the store that it replaces can be taken over where their text is the same."""
    report: ReadReport
    """Filled while reading."""


def build_stores(
    task: Task,
    vocabulary: Vocabulary,
    parts: Sequence[StoreToBuild],
    *,
    shard_bytes: int,
    workers: int,
    locks: Sequence[int],
    progress: Progress | None,
) -> None:
    """Builds and publishes the stores of these parts. Hold their locks, whose open files are `locks`.

    Raises what the source raises on bad input, StorageError on a full disk, WorkerError if a process is killed.
    """
    makers = {part.split: ShardMaker(task, vocabulary, building(part.directory), part.split) for part in parts}
    for part in parts:
        refuse_foreign_directory(part.directory)
        _prepare(part, makers[part.split])
    entries: dict[Split, dict[int, ShardEntry]] = {part.split: {} for part in parts}
    probes: dict[Split, list[dict[str, Any]]] = {part.split: [] for part in parts}

    def groups() -> Iterator[Group]:
        for group in groups_of(read_task(task, {part.split: part.report for part in parts}), shard_bytes):
            if group.number == 0:
                probes[group.split] = make_probes(task, vocabulary, group.documents)
            yield group

    meter = _Meter(task, parts, progress)
    for split, number, entry in make_shards(groups(), makers, meter.count, workers=workers, locks=locks):
        entries[split][number] = entry
        meter.shards += 1
    for part in parts:
        _publish(part, makers[part.split], entries[part.split], probes[part.split])
    meter.tell(finished=True)


def _prepare(part: StoreToBuild, maker: ShardMaker) -> None:
    """Keeps what an interrupted build of the very same store left, and nothing else."""
    wanted = json.dumps(part.fingerprint, sort_keys=True).encode()
    known = maker.building / "fingerprint.json"
    if not (known.is_file() and known.read_bytes() == wanted):
        shutil.rmtree(maker.building, ignore_errors=True)
    for name in ("store", "entries"):
        (maker.building / name).mkdir(parents=True, exist_ok=True)
    write_file(known, lambda file: file.write(wanted))
    if part.keep_shards:
        _take_over_old_shards(part, maker)


def _take_over_old_shards(part: StoreToBuild, maker: ShardMaker) -> None:
    """Offers the shards of the store that is replaced: those whose text is still the same need no new work."""
    try:
        old = read_meta(part.directory)
        if _without_source(old["fingerprint"]) != _without_source(part.fingerprint):
            return
        for number, entry in enumerate(old["shards"]):
            path, entry_path = maker.paths(number)
            if path.exists() or not (part.directory / entry["file"]).exists():
                continue
            os.link(part.directory / entry["file"], path)
            maker.describe(entry_path, entry)
    except (OSError, DamagedStoreError, KeyError, TypeError):
        return  # nothing is lost but time: each shard is checked before it is used, and made if it is not there


def _without_source(fingerprint: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fingerprint.items() if key != "source"}


def _publish(part: StoreToBuild, maker: ShardMaker, made: dict[int, ShardEntry], probes: list[dict[str, Any]]) -> None:
    entries = [made[number] for number in range(len(made))]
    dtypes = {name: dtype.name for name, dtype in maker.encoder.dtypes.items()}
    counts = total_counts(entries, dtypes)
    if maker.encoder.counts_text:
        _report_preprocessed(part.report, entries, counts["columns"][next(iter(dtypes))]["rows"])
    meta = {
        "fingerprint": part.fingerprint,
        "dtype": next(iter(dtypes.values())),
        "dtypes": dtypes,
        "counts": counts,
        "shards": entries,
        "probes": probes,
        "report": part.report.to_dict(),
    }
    names = {entry["file"] for entry in entries}
    for path in (maker.building / "store").iterdir():
        if path.name not in names:
            path.unlink()
    write_meta(maker.building / "store", meta)
    publish(part.directory)


def _report_preprocessed(report: ReadReport, entries: Sequence[ShardEntry], made: int) -> None:
    """Says what the preprocessors made of the rows."""
    dropped = sum((Counter(entry["dropped"]) for entry in entries), Counter[str]())
    for function, count in sorted(dropped.items()):
        report.skip(f"left out by {function}", count=count)
    if made != report.documents:
        report.note("preprocessed", f"the preprocessors made {plural(made, 'example')} of them")


class _Meter:
    """Counts what is done, and tells."""

    def __init__(self, task: Task, parts: Sequence[StoreToBuild], progress: Progress | None) -> None:
        self._name = task.name
        self._splits = " and ".join(part.split for part in parts)
        self._progress = progress
        self._reports = [part.report for part in parts]
        self._source_bytes = source_bytes(task.source, [part.split for part in parts])
        self._start = time.monotonic()
        self._examples = self._text_bytes = self._tokens = self._made_bytes = self._made_tokens = 0
        self.shards = 0

    def count(self, done: Count) -> None:
        self._examples += done.examples
        self._text_bytes += done.text_bytes
        self._tokens += done.tokens
        if not done.found:
            self._made_bytes += done.text_bytes
            self._made_tokens += done.tokens
        self.tell(finished=False)

    def tell(self, *, finished: bool) -> None:
        if not self._progress:
            return
        seconds = max(time.monotonic() - self._start, 1e-3)
        pace = self._made_bytes / seconds, self._made_tokens / seconds
        counts = self._examples, self._text_bytes, self._tokens, self.shards
        self._progress(BuildProgress(self._name, self._splits, *counts, finished, *pace, self._left(seconds)))

    def _left(self, seconds: float) -> float:
        """The text ahead in proportion to that behind, of which some is read but not tokenized."""
        read = min(sum(report.file_bytes for report in self._reports), self._source_bytes)
        return seconds * (self._source_bytes - read) / read if read else math.nan
