"""Stores that several jobs build together, on one machine or on many that share a disk: `--shard i/n`.

Each job reads all of the text and makes the shards of its own numbers, so that the stores are the very same as one
process makes. All hold the locks of the stores together, which keeps everybody else away. The job that finds all shards
whole at its end publishes, for which it must be alone. Any may be killed, run again, or run twice at once: what it
writes is the same, and whole or absent.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spanloom.pipeline.build import (
    SHARD_BYTES,
    PartPass,
    StoreToBuild,
    is_prepared,
    make_parts,
    makers_of,
    prepare,
    publish_part,
)
from spanloom.pipeline.build_progress import Meter, Progress
from spanloom.pipeline.durable import locked
from spanloom.pipeline.publish import drop_leftovers, leftovers, lock_of
from spanloom.pipeline.shard_maker import ShardMaker
from spanloom.pipeline.share import BuildShare
from spanloom.pipeline.store import Store, Warn, log, look, source_now, stores_to_build, usable, wanted_stores
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport
from spanloom.vocabularies.vocabulary import Vocabulary

_SECONDS_BETWEEN = 0.2
_SECONDS_UNSAID = 5.0


@dataclass(frozen=True)
class Shared:
    """What there is of a task's stores once a job has made its share."""

    stores: dict[Split, Store]
    """Those that are whole."""
    missing: tuple[int, ...] = ()
    """The jobs that have shards still to make, or are making them."""


class _BusyError(Exception):
    """Another process holds a lock."""


def open_or_build_share(
    task: Task,
    directories: Mapping[Split, Path],
    vocabulary: Vocabulary,
    share: BuildShare,
    *,
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int = 1,
    warn: Warn = log.warning,
) -> Shared:
    """Makes a share of the shards of a task's stores where these are missing, and publishes what is whole then.

    Arguments and errors are those of `spanloom.pipeline.store.open_or_build_all`. Waits for a process that builds the
    stores alone, and for jobs that build others in their place.
    """
    build = _SharedBuild(task, directories, vocabulary, share, shard_bytes, workers, progress, _Once(warn))
    patience = _Patience(lambda: warn(f"waiting for another process that builds {next(iter(directories.values()))}"))
    while True:
        try:
            with _held(directories.values(), shared=True) as locks:
                parts = build.missing()
                if not parts or all(map(is_prepared, parts)):
                    passed = build.make(parts, locks) if parts else {}
                    break
            with _held(directories.values(), shared=False):  # others may not: they would see it half prepared
                build.prepare()
        except _BusyError:
            patience.wait()
    return build.publish(parts, passed)


def whole_stores(
    task: Task, directories: Mapping[Split, Path], vocabulary: Vocabulary, *, shard_bytes: int = SHARD_BYTES
) -> dict[Split, Store]:
    """Those of a task's stores that stand whole and up to date."""
    wanted = wanted_stores(task, directories, vocabulary, shard_bytes)
    found = look(task, directories, vocabulary, wanted, source_now(task), checksum=False)
    return {split: one.store for split, one in found.items() if one.store is not None}


@dataclass
class _SharedBuild:
    task: Task
    directories: Mapping[Split, Path]
    vocabulary: Vocabulary
    share: BuildShare
    shard_bytes: int
    workers: int
    progress: Progress | None
    warn: Warn

    def missing(self) -> list[StoreToBuild]:
        """The stores that are still to be built."""
        return self._look()[1]

    def _look(self) -> tuple[dict[Split, Store], list[StoreToBuild]]:
        wanted = wanted_stores(self.task, self.directories, self.vocabulary, self.shard_bytes)
        source = source_now(self.task)
        found = look(self.task, self.directories, self.vocabulary, wanted, source, checksum=False)
        stores = usable(found, self.warn)
        reports: dict[Split, ReadReport] = {split: ReadReport() for split in self.directories}
        return stores, stores_to_build(self.directories, wanted, found, source, reports)

    def _makers(self, parts: Iterable[StoreToBuild]) -> dict[Split, ShardMaker]:
        return makers_of(self.task, self.vocabulary, parts, shared=True)

    def prepare(self) -> None:
        """Makes ready what all jobs write into, unless another has. Hold the locks alone."""
        parts = self.missing()
        makers = self._makers(parts)
        for part in parts:
            if not is_prepared(part):
                prepare(part, makers[part.split])

    def make(self, parts: list[StoreToBuild], locks: list[int]) -> dict[Split, PartPass]:
        """Makes the share of these stores. Hold the locks, whose open files are `locks`."""
        meter = Meter(self.task, {part.split: part.report for part in parts}, self.progress)
        passed = make_parts(
            parts,
            self._makers(parts),
            meter,
            shard_bytes=self.shard_bytes,
            workers=self.workers,
            locks=locks,
            share=self.share,
        )
        meter.tell(finished=True)
        return passed

    def publish(self, parts: list[StoreToBuild], passed: Mapping[Split, PartPass]) -> Shared:
        """Publishes the stores whose shards are all there, unless others are at work on them, who then will."""
        makers, missing = self._makers(parts), set[int]()
        for part in parts:
            one, maker = passed[part.split], makers[part.split]
            with contextlib.suppress(_BusyError), _held([part.directory], shared=False):
                if is_prepared(part) and None not in (entries := one.entries(maker)):
                    publish_part(part, maker, [entry for entry in entries if entry is not None], one.probes)
        stores, _ = self._look()
        for part in parts:
            if part.split not in stores:
                one, maker = passed[part.split], makers[part.split]
                absent = [number for number, entry in enumerate(one.entries(maker)) if entry is None]
                missing |= {self.share.owner(maker.store_name, number) for number in absent}
        self._tidy(stores)
        return Shared(stores, tuple(sorted(missing)))

    def _tidy(self, stores: Iterable[Split]) -> None:
        """Removes what a job left that was killed when the store stood in its place already."""
        for split in stores:
            if leftovers(self.directories[split]):
                with contextlib.suppress(_BusyError), _held([self.directories[split]], shared=False):
                    if split in self._look()[0]:
                        drop_leftovers(self.directories[split])


@contextlib.contextmanager
def _held(directories: Iterable[Path], *, shared: bool) -> Iterator[list[int]]:
    """The locks of these stores, at once. Raises _BusyError where another process holds one."""

    def busy() -> None:
        raise _BusyError

    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(locked(lock_of(directory), busy, shared=shared)) for directory in directories]


class _Patience:
    """Waits a little, again and again, and says so once that is long."""

    def __init__(self, say: Callable[[], object]) -> None:
        self._say = say
        self._start = time.monotonic()
        self._said = False

    def wait(self) -> None:
        """Waits a little."""
        if not self._said and time.monotonic() - self._start > _SECONDS_UNSAID:
            self._said = True
            self._say()
        time.sleep(_SECONDS_BETWEEN)


class _Once:
    """Says everything once."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._warn(text)
