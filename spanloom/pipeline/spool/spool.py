"""The shards of a stream, made as they are needed: found on disk, made here, or waited for.

Whoever makes shards holds the spool's lock and has the stream open. A run has a process for that, which is ahead of it
(`spanloom.pipeline.spool.writer`); where none is, as when a command looks at examples, it is whoever needs the next.
"""

import contextlib
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.durable import locked, write_file
from spanloom.pipeline.examples import DataError, Examples
from spanloom.pipeline.fingerprint import make_probes
from spanloom.pipeline.meta import check_file
from spanloom.pipeline.shard_maker import Count, ShardMaker
from spanloom.pipeline.spool.index import PROBES, SpoolIndex
from spanloom.pipeline.spool.marks import Mark, chained
from spanloom.pipeline.spool.reading import GroupReader, Say
from spanloom.pipeline.spool.shards import store_of
from spanloom.pipeline.store import Store
from spanloom.pipeline.task_examples import examples_of
from spanloom.settings.row_sources import Streamed
from spanloom.settings.task import Task
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.row_sources import described
from spanloom.vocabularies.vocabulary import Vocabulary

log = logging.getLogger(__name__)

_OPEN = 64
"""Shards whose examples are at hand."""
_MOST_EMPTY = 16
"""Shards one after another of which the preprocessors may leave nothing."""
_LOOK_EVERY = 0.05
_PATIENCE = 60.0
_TOLD_EVERY = 10.0


Tell = Callable[[Count], object]


def _untold(count: Count) -> None:
    return


class ChangedStreamError(BadInputError):
    """A stream gives other rows than those that it gave before, which are wanted again."""


class _BusyError(Exception):
    """Another process makes shards."""


class Spool:
    """Numbered examples of a stream, by shard."""

    def __init__(self, task: Task, vocabulary: Vocabulary, index: SpoolIndex, say: Say = log.warning) -> None:
        assert isinstance(task.source, Streamed)
        self.task = task
        self.vocabulary = vocabulary
        self.index = index
        self.say = say
        self._source = task.source
        self._maker = ShardMaker(task, vocabulary, index.directory, "train")
        self._reader: GroupReader | None = None
        self._again: GroupReader | None = None
        self._examples: OrderedDict[int, Examples] = OrderedDict()
        self._stores: OrderedDict[int, Store] = OrderedDict()
        self._announced = -1
        self._told = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.task, self.vocabulary, self.index.directory)

    # ---- What is read ------------------------------------------------------------------------------------------------

    def reach(self, example: int) -> None:
        """Makes or awaits shards until there is this example. Raises what making a shard raises."""
        if example >= self.index.last.examples:
            self._await(lambda: example < self.index.refresh().examples)

    def shards_of(self, examples_N: np.ndarray) -> np.ndarray:
        """(N,) the shard that each example is in, made where it is not there yet. Raises as `reach` does, and DataError
        for examples before those that this spool begins with.
        """
        if len(examples_N):
            self.reach(int(examples_N.max()))
            if examples_N.min() < self.index.base.examples:
                raise DataError(
                    f"the stream of task {self.task.name!r} goes on in {self.index.directory} from example "
                    f"{self.index.base.examples:,} of another directory: what stands before that is not here"
                )
        return self.index.shards_of(examples_N)

    def store(self, shard: int) -> Store:
        """One shard as a store of its own; it is made if it is not on disk.

        Raises ChangedStreamError where it was there once and the stream no longer gives its rows.
        """
        if shard not in self._stores:
            if shard > self._announced:
                self.index.want(shard)
                self._announced = shard
            found = self._found(shard)
            while found is None:
                self._await(lambda: self._is_there(shard), shard)
                found = self._found(shard)
            self._stores[shard] = found
            while len(self._stores) > _OPEN:
                self._stores.popitem(last=False)
        self._stores.move_to_end(shard)
        return self._stores[shard]

    def examples(self, shard: int) -> Examples:
        """The examples of one shard, numbered from 0."""
        if shard not in self._examples:
            self._examples[shard] = self._examples_of(shard, self.store(shard))
            while len(self._examples) > _OPEN:
                self._examples.popitem(last=False)
        self._examples.move_to_end(shard)
        return self._examples[shard]

    def _await(self, is_there: Callable[[], bool], shard: int | None = None) -> None:
        """Until it is there: a shard that was there before, or the next ones are made, by another process or here."""
        begun, said = time.monotonic(), False
        while not is_there():
            wanted = self.index.last.shard if shard is None else shard
            self.index.want(wanted)
            with contextlib.suppress(_BusyError), self.lock(wait=False):
                while not is_there():
                    self.make(self.index.last.shard if shard is None else shard)
                return
            time.sleep(_LOOK_EVERY)
            if not said and time.monotonic() - begun > _PATIENCE:
                said = True
                self.say(f"waiting for the stream of task {self.task.name!r}: another process makes shard {wanted}")

    @contextlib.contextmanager
    def lock(self, *, wait: bool) -> Iterator[None]:
        """Holds the right to make shards. Raises _BusyError, unless it is to wait, where another process has it."""

        def busy() -> None:
            if not wait:
                raise _BusyError

        with locked(lock_of(self.index.directory), busy):
            self.index.refresh()
            yield

    def _is_there(self, shard: int) -> bool:
        return shard < self.index.refresh().shard and all(path.exists() for path in self.index.paths(shard))

    def _found(self, shard: int) -> Store | None:
        """The shard, if it is whole on disk."""
        path, entry_path = self.index.paths(shard)
        if shard >= self.index.last.shard:
            return None
        try:
            entry = json.loads(entry_path.read_bytes())
            check_file(path, entry, checksum=False)
            return store_of(self.index, [entry])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:  # DamagedStoreError is a ValueError
            self.say(f"shard {shard} of the stream of task {self.task.name!r} is made anew: it is damaged ({error})")
            entry_path.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            return None

    def _examples_of(self, shard: int, store: Store) -> Examples:
        try:
            return examples_of(self.task, {"train": store}, self.vocabulary)["train"]
        except DataError as error:
            raise DataError(f"task {self.task.name!r}, in shard {shard} of its stream: {error}") from error

    # ---- What is made ------------------------------------------------------------------------------------------------

    def make(self, shard: int, tell: Tell = _untold) -> None:
        """Makes the next shard, or one that was there before. Hold the lock.

        Raises ChangedStreamError, BadInputError, PreprocessorError, DataError for what can be no example; StorageError
        on a full disk.
        """
        if shard < self.index.last.shard:
            self._make_again(shard, tell)
            return
        mark = self.index.last
        reader = self._reader_at(mark)
        group = reader.next(mark.shard)
        if mark == self.index.base:
            probes = json.dumps(make_probes(self.task, self.vocabulary, group.documents)).encode()
            write_file(self.index.directory / PROBES, lambda file: file.write(probes))
        entry = self._maker.make(group, tell)
        tokens = {name: column["tokens"] for name, column in entry["columns"].items()}
        examples = self._examples_of(mark.shard, store_of(self.index, [entry])).num_examples
        if not examples:
            self._check_not_barren()
        self.index.append(mark.after(examples, tokens, entry["text_sha256"], reader.place))
        if self.index.last.examples <= self.index.needed():  # the stream is only brought to where a run goes on
            self.index.delete(mark.shard)

    def _make_again(self, shard: int, tell: Tell) -> None:
        mark, after = self.index.mark(shard), self.index.mark(shard + 1)
        reader = self._again
        if reader is None or reader.place != mark.place:
            reader = self._again = GroupReader(self._source, mark.place, self.index.bound, self._passed, self.say)
        group = reader.next(shard)
        if chained(mark.chain, group.text_hash()) != after.chain:
            raise ChangedStreamError(
                described(self._source),
                f"the rows of shard {shard} (from row {mark.place.rows:,} on) are wanted again, and are others now",
                "A run goes on exactly from what its directory keeps of a stream; put that back, make the stream give "
                "the same rows again, or begin a new run",
            )
        self._maker.make(group, tell)

    def _reader_at(self, mark: Mark) -> GroupReader:
        """The stream where the next shard begins. One that is opened anew reads its last shard once more."""
        if self._reader is not None and self._reader.place == mark.place:
            return self._reader
        if mark.shard == self.index.base.shard:
            self._reader = GroupReader(self._source, mark.place, self.index.bound, self._passed, self.say)
            return self._reader
        before = self.index.mark(mark.shard - 1)
        self._reader = GroupReader(self._source, before.place, self.index.bound, self._passed, self.say)
        again = self._reader.next(before.shard)
        if chained(before.chain, again.text_hash()) != mark.chain:
            self.say(
                f"the stream of task {self.task.name!r} gives other rows than before: the last "
                f"{mark.place.kept - before.place.kept:,} that are kept do not come again. What is kept stays as it "
                "is, and what follows is what comes now; the whole cannot be repeated from the beginning. "
                "A stream that gives the same rows each time (a seed of its own, one commit of a data set) can"
            )
            self._reader = GroupReader(self._source, mark.place, self.index.bound, self._passed, self.say)
        return self._reader

    def _passed(self, rows: int) -> None:
        now = time.monotonic()
        if rows == 0:
            self._told = now
        elif now - self._told > _TOLD_EVERY:
            self._told = now
            self.say(
                f"the stream of task {self.task.name!r} is brought to where it was: {rows:,} of "
                f"{self.index.last.place.rows:,} rows passed over"
            )

    def _check_not_barren(self) -> None:
        shard = self.index.last.shard
        first = max(shard - _MOST_EMPTY, self.index.base.shard)
        if shard - first == _MOST_EMPTY and self.index.mark(first).examples == self.index.last.examples:
            raise DataError(
                f"nothing is left of {_MOST_EMPTY} shards of the stream of task {self.task.name!r} that follow one "
                "another: check its preprocessors, and whether its vocabulary has ids for the text"
            )


def lock_of(directory: Path) -> Path:
    """The file that those who make shards of this spool hold locked."""
    return directory.with_name(directory.name + ".lock")


def _opened(task: Task, vocabulary: Vocabulary, directory: Path) -> Spool:
    return Spool(task, vocabulary, SpoolIndex(directory))
