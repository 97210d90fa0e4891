"""Held-out parts of tasks by themselves: of those that a run measures though it does not learn them."""

from collections.abc import Callable, Iterable
from pathlib import Path

from spanloom.pipeline.build_progress import Progress
from spanloom.pipeline.data import store_directories
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.left_out import none_left
from spanloom.pipeline.open_task import check_task, open_task
from spanloom.pipeline.several import have_stores, naming, refuse_missing
from spanloom.pipeline.spool.opening import heldout_task
from spanloom.pipeline.store import Store, Warn
from spanloom.pipeline.task_examples import examples_of
from spanloom.settings.objectives import Supervised
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.task import Task, heldout_of
from spanloom.vocabularies.vocabulary import Vocabulary


def open_watched(
    run: Run, directory: Path, vocabulary: Vocabulary, *, progress: Progress | None, workers: int, warn: Warn
) -> dict[str, Dataset]:
    """The held-out parts of `run.eval.also`, by task, those the run learns and those without any left out.

    The stores stand where `open_data` has its own, and are built likewise: how long the longest pairs are is known of
    both parts only. Raises what `open_data` raises.
    """
    learnt = {task.name for task in run.tasks}
    tasks = [task for task in run.eval.also if task.name not in learnt]
    return open_heldout(run, tasks, directory, vocabulary, progress=progress, workers=workers, warn=warn)


def open_heldout(
    run: Run,
    tasks: Iterable[Task],
    directory: Path,
    vocabulary: Vocabulary,
    *,
    progress: Progress | None,
    workers: int,
    warn: Warn,
    alone: bool = False,
    tell_empty: Callable[[str, str], None] | None = None,
) -> dict[str, Dataset]:
    """The held-out parts of tasks, by name, those without any left out. `run`: whose model they are to fit, and seed.

    `alone`: the training part is not built where nothing asks for it: of pairs whose lengths are set, and where all
    files are held out. `tell_empty` (unset: `warn`) is told of a task whose rows the preprocessors all left out, and
    why its part is empty. Otherwise as `open_watched`.
    """
    places_of = {}
    for task in tasks:
        places = store_directories(task, directory)
        if is_stream(task.source) or (alone and _stands_alone(task)):
            places.pop("train")
        if "heldout" in places:
            places_of[task.name] = task, places
    if alone:
        refuse_missing([task for task, places in places_of.values() if not have_stores(places.values())])
    found = dict[str, Dataset]()
    for task, places in places_of.values():
        if is_stream(task.source):
            task = heldout_task(task)
        with naming(task, several=True):
            check_task(run, task, vocabulary, warn)
            built = open_task(task, places, vocabulary, progress=progress, workers=workers, warn=warn)
            stores = {split: part for split, part in built.items() if isinstance(part, Store)}
            examples = examples_of(task, stores, vocabulary)["heldout"]
        if examples.num_examples:
            found[task.name] = Dataset(examples, seed=run.seed, task=task.name, store=stores["heldout"])
        elif why := none_left(task, stores["heldout"].report):
            told = f"the held-out part of task {task.name!r} is empty: {why}"
            tell_empty(task.name, told) if tell_empty else warn(told)
    return found


def _stands_alone(task: Task) -> bool:
    """Whether there is no training part, or the width of rows follows from the settings alone."""
    source, objective = task.source, task.objective
    if heldout_of(source) and heldout_of(source) == getattr(source, "files", None):
        return True
    return isinstance(objective, Supervised) and None not in (objective.inputs_length, objective.targets_length)
