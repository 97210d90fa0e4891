"""Building stores: shard after shard in bounded memory, resumable from the last whole shard, published by a rename.

All parts of a task are built in one pass over its text. Where one shard ends and the next begins follows from the text
alone (`spanloom.pipeline.groups`), so any number of processes that build them make the same bytes. While a build runs
its files stand beside the store, where nothing opens them as one (`spanloom.pipeline.publish`).
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.pipeline.build_progress import Meter, Progress
from spanloom.pipeline.build_workers import make_shards
from spanloom.pipeline.durable import write_file
from spanloom.pipeline.fingerprint import make_probes
from spanloom.pipeline.groups import Group, groups_of
from spanloom.pipeline.left_out import BY
from spanloom.pipeline.meta import read_meta, total_counts, write_meta
from spanloom.pipeline.publish import building, publish, refuse_foreign_directory
from spanloom.pipeline.shard_maker import ShardEntry, ShardMaker
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.share import BuildShare
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport, plural
from spanloom.tasks.task_rows import read_task
from spanloom.vocabularies.vocabulary import Vocabulary

SHARD_BYTES = 32 * 2**20
_FINGERPRINT = "fingerprint.json"
_FOLDERS = ("store", "entries")


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


@dataclass
class PartPass:
    """What a pass over the text of one part found and made."""

    probes: list[dict[str, Any]] = field(default_factory=list)
    """See `spanloom.pipeline.fingerprint.make_probes`."""
    made: dict[int, ShardEntry] = field(default_factory=dict)
    """Number -> description of the shards that were made, or found whole."""
    others: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Number -> hash of the text, and number of the first document, of the shards that are left to others."""

    def entries(self, maker: ShardMaker) -> list[ShardEntry | None]:
        """The descriptions of all shards in order, those by others as they stand on disk; None where one is missing."""
        numbers = range(len(self.made) + len(self.others))
        return [self.made.get(number) or maker.standing(number, *self.others[number]) for number in numbers]


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
    makers = makers_of(task, vocabulary, parts)
    for part in parts:
        prepare(part, makers[part.split])
    meter = Meter(task, {part.split: part.report for part in parts}, progress)
    passed = make_parts(parts, makers, meter, shard_bytes=shard_bytes, workers=workers, locks=locks)
    for part in parts:
        one = passed[part.split]
        publish_part(part, makers[part.split], [one.made[number] for number in range(len(one.made))], one.probes)
    meter.tell(finished=True)


def makers_of(
    task: Task, vocabulary: Vocabulary, parts: Iterable[StoreToBuild], *, shared: bool = False
) -> dict[Split, ShardMaker]:
    """What makes the shards of these parts; `shared`: others may make the same ones at the same time."""
    return {part.split: ShardMaker(task, vocabulary, building(part.directory), part.split, shared) for part in parts}


def make_parts(
    parts: Sequence[StoreToBuild],
    makers: Mapping[Split, ShardMaker],
    meter: Meter,
    *,
    shard_bytes: int,
    workers: int,
    locks: Sequence[int],
    share: BuildShare | None = None,
) -> dict[Split, PartPass]:
    """Reads the text and makes its shards, or those of a share of them, in the directories that `prepare` made."""
    passed = {part.split: PartPass() for part in parts}
    maker = makers[parts[0].split]
    reports = {part.split: part.report for part in parts}

    def groups() -> Iterator[Group]:
        for group in groups_of(read_task(maker.task, reports), shard_bytes):
            one = passed[group.split]
            if group.number == 0:
                one.probes = make_probes(maker.task, maker.vocabulary, group.documents)
            if share is None or share.owns(makers[group.split].store_name, group.number):
                yield group
            else:
                one.others[group.number] = group.text_hash(), group.first

    for split, number, entry in make_shards(groups(), makers, meter.count, workers=workers, locks=locks):
        passed[split].made[number] = entry
        meter.shards += 1
    return passed


def is_prepared(part: StoreToBuild) -> bool:
    """Whether a build of the very same store was begun, and nothing else stands there."""
    place = building(part.directory)
    known = place / _FINGERPRINT
    whole = all((place / name).is_dir() for name in _FOLDERS)
    return whole and known.is_file() and known.read_bytes() == _in_bytes(part)


def prepare(part: StoreToBuild, maker: ShardMaker) -> None:
    """Keeps what an interrupted build of the very same store left, and nothing else."""
    refuse_foreign_directory(part.directory)
    if not is_prepared(part):
        (maker.building / _FINGERPRINT).unlink(missing_ok=True)  # first: a kill amid the rest leaves nothing prepared
        shutil.rmtree(maker.building, ignore_errors=True)
    for name in _FOLDERS:
        (maker.building / name).mkdir(parents=True, exist_ok=True)
    if part.keep_shards:
        _take_over_old_shards(part, maker)
    wanted = _in_bytes(part)  # last: whoever sees it finds all else there
    write_file(maker.building / _FINGERPRINT, lambda file: file.write(wanted))


def _in_bytes(part: StoreToBuild) -> bytes:
    return json.dumps(part.fingerprint, sort_keys=True).encode()


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


def publish_part(
    part: StoreToBuild, maker: ShardMaker, entries: Sequence[ShardEntry], probes: Sequence[dict[str, Any]]
) -> None:
    """Puts the store of these shards, all there are, in its place. Hold its lock."""
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
        "probes": list(probes),
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
        report.skip(f"{BY}{function}", count=count)
    if made != report.documents:
        report.note("preprocessed", f"the preprocessors made {plural(made, 'example')} of them")
