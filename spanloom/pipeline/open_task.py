"""One task's stores in their directories, opened or built; and what is known to be wrong before hours of building."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spanloom.pipeline.build_progress import Progress
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.row_examples import check_readable
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.spool.opening import heldout_task, open_spool
from spanloom.pipeline.store import Store, Warn, open_or_build_all
from spanloom.pipeline.training_rows import LEARNT
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.task import Task, features_of, uses_rows
from spanloom.tasks.feature_vocabularies import vocabularies_of
from spanloom.tasks.heldout import Split
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.preprocessing import Preprocessors
from spanloom.vocabularies.vocabulary import Vocabulary

Part = Store | SpoolIndex
"""What holds one part of a task: a store, or the shards of a stream."""


def check_task(run: Run, task: Task, vocabulary: Vocabulary, warn: Warn) -> None:
    """Refuses what the settings of a task cannot mean.

    Raises DataError, ValueError for impossible settings, FunctionError for code that cannot be loaded.
    """
    if not isinstance(task.objective, Supervised):
        denoiser_of(task.objective, vocabulary)
    if not uses_rows(task):
        return
    check_readable(task, chain := Preprocessors(task, vocabulary))
    if chain.read and isinstance(run.packing, Packed):
        warn(
            f"nobody knows beforehand how long the examples of task {task.name!r} become (its preprocessor "
            f"{chain.read[0].function} takes rng): in packed rows each gets the room of the longest"
        )
    for feature in features_of(task):
        if feature.vocabulary is not None and feature.name in LEARNT:
            check_vocabulary_fits(run, vocabularies_of(task, vocabulary)[feature.name])


def check_vocabulary_fits(run: Run, vocabulary: Vocabulary) -> None:
    """Raises DataError for a vocabulary that has ids beyond the model's embedding."""
    if (highest := vocabulary.highest_id) >= run.model.vocab_size:
        raise DataError(
            f"the vocabulary of {run.task.name!r} has ids up to {highest}, but the model's embedding has "
            f"{run.model.vocab_size} rows: set model.vocab_size to at least {highest + 1} (a multiple of 128 is fast), "
            "or choose the vocabulary that belongs to this model"
        )


def open_task(
    task: Task,
    directories: Mapping[Split, Path],
    vocabulary: Vocabulary,
    *,
    stands: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checksum: bool = False,
    workers: int = 1,
    warn: Warn,
) -> dict[Split, Part]:
    """The parts of a task in their directories, see `open_or_build_all`; of a stream its spool, see `open_spool`."""
    places, parts, finite = dict(directories), dict[Split, Part](), task
    if is_stream(task.source):
        parts["train"] = open_spool(
            task,
            places.pop("train"),
            vocabulary,
            stands=stands,
            progress=progress,
            checksum=checksum,
            warn=warn,
        )
        finite = heldout_task(task)
    stores = open_or_build_all(
        finite, places, vocabulary, progress=progress, checksum=checksum, workers=workers, warn=warn
    )
    return parts | stores
