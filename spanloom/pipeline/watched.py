"""Held-out parts of tasks that a run measures though it does not learn them."""

from pathlib import Path

from spanloom.pipeline.build_progress import Progress
from spanloom.pipeline.data import store_directories
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.open_task import check_task, open_task
from spanloom.pipeline.several import naming
from spanloom.pipeline.spool.opening import heldout_task
from spanloom.pipeline.store import Store, Warn
from spanloom.pipeline.task_examples import examples_of
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.vocabularies.vocabulary import Vocabulary


def open_watched(
    run: Run, directory: Path, vocabulary: Vocabulary, *, progress: Progress | None, workers: int, warn: Warn
) -> dict[str, Dataset]:
    """The held-out parts of `run.eval.also`, by task, those the run learns and those without any left out.

    The stores stand where `open_data` has its own, and are built likewise: how long the longest pairs are is known of
    both parts only. Raises what `open_data` raises.
    """
    learnt, found = {task.name for task in run.tasks}, dict[str, Dataset]()
    for task in run.eval.also:
        if task.name in learnt:
            continue
        places = store_directories(task, directory)
        if is_stream(task.source):
            places.pop("train")
            task = heldout_task(task)
        if "heldout" not in places:
            continue
        with naming(task, several=True):
            check_task(run, task, vocabulary, warn)
            built = open_task(task, places, vocabulary, progress=progress, workers=workers, warn=warn)
            stores = {split: part for split, part in built.items() if isinstance(part, Store)}
            examples = examples_of(task, stores, vocabulary)["heldout"]
        if examples.num_examples:
            found[task.name] = Dataset(examples, seed=run.seed, task=task.name, store=stores["heldout"])
    return found
