"""How far the building of stores is: of the task at work, and of all tasks of a run."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from spanloom.pipeline.shard_maker import Count
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import source_bytes


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
    read_bytes: int = 0
    """Bytes of the source's files read, as they lie on disk."""


Progress = Callable[[BuildProgress], object]


class Meter:
    """Counts what is done of one task, and tells."""

    def __init__(self, task: Task, reports: Mapping[Split, ReadReport], progress: Progress | None) -> None:
        self._name = task.name
        self._splits = " and ".join(reports)
        self._progress = progress
        self._reports = list(reports.values())
        self._source_bytes = source_bytes(task.source, list(reports))
        self._start = time.monotonic()
        self._examples = self._text_bytes = self._tokens = self._made_bytes = self._made_tokens = 0
        self.shards = 0

    def count(self, done: Count) -> None:
        """Takes what was just done, and tells."""
        self._examples += done.examples
        self._text_bytes += done.text_bytes
        self._tokens += done.tokens
        if not done.found:
            self._made_bytes += done.text_bytes
            self._made_tokens += done.tokens
        self.tell(finished=False)

    def tell(self, *, finished: bool) -> None:
        """Tells how far it is."""
        if not self._progress:
            return
        seconds = max(time.monotonic() - self._start, 1e-3)
        pace = self._made_bytes / seconds, self._made_tokens / seconds
        counts = self._examples, self._text_bytes, self._tokens, self.shards
        read = min(sum(report.file_bytes for report in self._reports), self._source_bytes)
        left = _left(seconds, read, self._source_bytes - read)
        self._progress(BuildProgress(self._name, self._splits, *counts, finished, *pace, left, read))


def _left(seconds: float, behind: int, ahead: int) -> float:
    """The text ahead in proportion to that behind, of which some is read but not tokenized."""
    return seconds * ahead / behind if behind else math.nan


@dataclass(frozen=True)
class AllProgress:
    """How far the stores of several tasks are."""

    current: BuildProgress
    """The task at work."""
    done: int
    """Tasks that are done, built or not."""
    tasks: int
    """Tasks in all."""
    examples: int
    """Documents of the tasks that were built, the one at work included; so are the following."""
    text_bytes: int
    tokens: int
    bytes_per_second: float
    """Over the time spent building."""
    tokens_per_second: float
    seconds_left: float
    """For all tasks at this pace; NaN where nobody knows."""


class AllMeter:
    """Adds up what is told of one task after another."""

    def __init__(self, tasks: Sequence[Task], tell: Callable[[AllProgress], object]) -> None:
        self._tell = tell
        self._ahead = {task.name: _size(task) for task in tasks}
        self._tasks = len(tasks)
        self._examples = self._text_bytes = self._tokens = self._read = 0
        self._seconds = 0.0
        self._begun = 0.0
        self._current: BuildProgress | None = None

    def begin(self, task: Task) -> None:
        """The task is looked at; if it is built, `building` is told."""
        self._size_at_work = self._ahead.pop(task.name)
        self._begun = time.monotonic()

    def building(self, progress: BuildProgress) -> None:
        """Takes what is told of the task at work."""
        self._current = progress
        seconds = max(self._seconds + time.monotonic() - self._begun, 1e-3)
        text_bytes, tokens = self._text_bytes + progress.text_bytes, self._tokens + progress.tokens
        read = self._read + progress.read_bytes
        sizes = [*self._ahead.values(), self._size_at_work]
        ahead = sum(sizes) - progress.read_bytes
        self._tell(
            AllProgress(
                progress,
                self._tasks - len(self._ahead) - 1,
                self._tasks,
                self._examples + progress.examples,
                text_bytes,
                tokens,
                text_bytes / seconds,
                tokens / seconds,
                _left(seconds, read, ahead) if all(sizes) else math.nan,
            )
        )

    def end(self) -> float | None:
        """The task is done, or failed; the seconds that building took, None where nothing was built."""
        if (progress := self._current) is None:
            return None
        seconds = time.monotonic() - self._begun
        self._examples += progress.examples
        self._text_bytes += progress.text_bytes
        self._tokens += progress.tokens
        self._read += progress.read_bytes
        self._seconds += seconds
        self._current = None
        return seconds


def _size(task: Task) -> int:
    try:
        return source_bytes(task.source, ("train", "heldout"))
    except Exception:
        return 0  # what is wrong is said when its turn comes
