"""The stores of many tasks, one after another: what fails is named, and the others are built all the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from spanloom.pipeline.build_progress import AllMeter, AllProgress, Progress
from spanloom.pipeline.data import store_directories, task_data
from spanloom.pipeline.durable import StorageError
from spanloom.pipeline.open_task import Part, check_task, open_task
from spanloom.pipeline.several import have_stores
from spanloom.pipeline.share import BuildShare
from spanloom.pipeline.shared_build import open_or_build_share, whole_stores
from spanloom.pipeline.spool.shards import spooled
from spanloom.pipeline.store import Store, Warn
from spanloom.pipeline.unknown_text import warn_of_unknown_text
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.sources import source_fingerprint
from spanloom.vocabularies.vocabulary import Vocabulary


@dataclass(frozen=True)
class Opened:
    """What there is of a task's stores once they were opened or built."""

    parts: dict[Split, Part]
    """Those that are whole."""
    whole: bool = True
    """Whether these are all."""
    missing: tuple[int, ...] = ()
    """The jobs that have shards of the others still to make."""
    built_by: str = ""
    """Who built them, if this process did not."""

    @property
    def stores(self) -> dict[Split, Store]:
        """The parts as stores; of a stream, the shards on disk."""
        return {split: part if isinstance(part, Store) else spooled(part) for split, part in self.parts.items()}


@dataclass(frozen=True)
class Outcome:
    """What became of one task."""

    task: Task
    opened: Opened = field(default_factory=lambda: Opened({}))
    """What there is of it."""
    seconds: float | None = None
    """How long building took; None: nothing was built."""
    error: Exception | None = None
    """Why there is nothing."""


OpenOne = Callable[[Task, Mapping[Split, Path], Progress], Opened]
"""Opens or builds the stores of a task in their directories."""
Together = Callable[[Sequence[tuple[Task, Mapping[Split, Path]]]], Mapping[str, Exception | None]]
"""Builds the stores of many tasks at once; by name of the task None, or why there are none. Not of those it found."""


def in_processes(vocabulary: Vocabulary, workers: int, warn: Warn, *, checksum: bool = True) -> OpenOne:
    """Opens or builds whole stores with up to so many processes."""

    def open_one(task: Task, places: Mapping[Split, Path], progress: Progress) -> Opened:
        return Opened(
            open_task(task, places, vocabulary, progress=progress, checksum=checksum, workers=workers, warn=warn)
        )

    return open_one


def in_share(vocabulary: Vocabulary, share: BuildShare, workers: int, warn: Warn) -> OpenOne:
    """Makes the share of one of several jobs, see `spanloom.pipeline.shared_build`. Streams are no work to share."""
    alone = in_processes(vocabulary, workers, warn, checksum=False)

    def open_one(task: Task, places: Mapping[Split, Path], progress: Progress) -> Opened:
        if is_stream(task.source):
            return alone(task, places, progress)
        made = open_or_build_share(task, places, vocabulary, share, progress=progress, workers=workers, warn=warn)
        return Opened({**made.stores}, len(made.stores) == len(places), made.missing)

    return open_one


def build_tasks(
    run: Run,
    tasks: Sequence[Task],
    directory: Path,
    vocabulary: Vocabulary,
    open_one: OpenOne,
    *,
    together: Together | None = None,
    tell: Callable[[AllProgress], object],
    warn: Warn,
) -> list[Outcome]:
    """Opens or builds the stores of some tasks of a run in its directory; what becomes of each, in their order.

    `together` has its turn first, with all tasks but streams; `open_one` is left with what it finds then. A task that
    fails is said at once, and the rest are built; what can be known beforehand is said before any is. A task that is
    alone raises its error. Raises StorageError on a full disk.
    """
    meter = AllMeter(tasks, tell)
    outcomes: dict[str, Outcome] = {}
    made: Mapping[str, Exception | None] = {}

    def attempt(task: Task, work: Callable[[Task], None]) -> None:
        try:
            work(task)
        except StorageError:
            raise  # there is no room for the others either
        except Exception as error:
            if len(tasks) == 1:
                raise
            warn(f"task {task.name!r} fails, and the others are built without it: {error}")
            outcomes[task.name] = Outcome(task, error=error)

    def build_one(task: Task) -> None:
        if (error := made.get(task.name)) is not None:
            raise error
        meter.begin(task)
        try:
            opened = open_one(task, store_directories(task, directory), meter.building)
        finally:
            seconds = meter.end()
        if opened.whole:
            data = task_data(task, opened.parts, vocabulary, run.seed)
            warn_of_unknown_text(task, data.train.store, vocabulary, warn)
        elsewhere = replace(opened, built_by="built together") if task.name in made else opened
        outcomes[task.name] = Outcome(task, elsewhere, seconds)

    for task in tasks:
        attempt(task, partial(_check, run, directory, vocabulary, warn))
    if together is not None:
        fit = [task for task in tasks if task.name not in outcomes and not is_stream(task.source)]
        made = together([(task, store_directories(task, directory)) for task in fit])
    for task in tasks:
        if task.name not in outcomes:
            attempt(task, build_one)
    return [outcomes[task.name] for task in tasks]


def seen_again(outcomes: Sequence[Outcome], directory: Path, vocabulary: Vocabulary) -> list[Outcome]:
    """The outcomes of a share, with the stores that other jobs have put in their places meanwhile."""

    def now(one: Outcome) -> Outcome:
        if one.error is not None or one.opened.whole:
            return one
        places = store_directories(one.task, directory)
        stores = whole_stores(one.task, places, vocabulary)
        return replace(one, opened=Opened({**stores})) if len(stores) == len(places) else one

    return [now(one) for one in outcomes]


def _check(run: Run, directory: Path, vocabulary: Vocabulary, warn: Warn, task: Task) -> None:
    check_task(run, task, vocabulary, warn)
    if not have_stores(store_directories(task, directory).values()):
        source_fingerprint(task.source)
