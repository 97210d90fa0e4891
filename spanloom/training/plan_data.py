"""What is known of a run's data before a store is built: how long rows are, and how much there is if stores stand."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spanloom.pipeline.data import Data, data_of, store_directories
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.store import open_store
from spanloom.settings.mixture import map_tasks
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary

_SIDES = {"encoder": "inputs", "decoder": "targets"}


class UnknownLengthError(ValueError):
    """Nobody can say how long rows are before the data are read. The message has the settings that would."""


@dataclass(frozen=True)
class PlanData:
    """Rows of a run, and how often it sees its data."""

    lengths: Mapping[str, int]
    """Tokens of an encoder row ("encoder") and of a decoder row ("decoder")."""
    epochs: Mapping[str, float] = field(default_factory=dict)
    """How often each task's examples are seen in all steps, where its store says how many there are."""
    unknown: str = ""
    """Why there are no epochs; empty where there are."""
    vocabulary: Vocabulary | None = None
    """The run's; None where its file is not there."""


def without_files(run: Run) -> Run:
    """The run with a name in the place of files that were not given: a plan reads none."""

    def named(task: Task) -> Task:
        source: Any = task.source
        if getattr(source, "files", None) == ():
            return replace(task, source=replace(source, files=("not-given.txt",)))
        return task

    return replace(run, task=map_tasks(run.task, named))


def plan_data(run: Run, directory: Path) -> PlanData:
    """Rows and epochs of a resolved run whose stores, if there are any, are in `directory`; nothing is built.

    Raises UnknownLengthError where lengths are left to data that have not been read.
    """
    known = _vocabulary(run)
    vocabulary = known or build(Bytes(extra_ids=1000))  # as many sentinels as any text takes
    data, why = _opened(run, directory, vocabulary)
    if data is not None:
        epochs = _epochs(run, data)
        why = "" if epochs else "its data are streams, which nobody has counted"
        return PlanData(data.lengths, epochs, why, known)
    lengths = {side: _width(run, vocabulary, name) for side, name in _SIDES.items()}
    return PlanData(lengths, unknown=why, vocabulary=known)


def _vocabulary(run: Run) -> Vocabulary | None:
    """The run's vocabulary; None where its file is not there yet."""
    settings = run.vocabulary
    if isinstance(settings, SentencePiece) and not Path(settings.path).is_file():
        return None
    return build(settings)


def _opened(run: Run, directory: Path, vocabulary: Vocabulary) -> tuple[Data | None, str]:
    """The data in their stores, or why there are none."""
    try:
        built = {
            task.name: {split: open_store(place) for split, place in store_directories(task, directory).items()}
            for task in run.tasks
        }
        return data_of(run, built, vocabulary), ""
    except FileNotFoundError:
        return None, "its stores are not built yet (spanloom cache builds them)"
    except (DataError, ValueError, OSError, KeyError) as error:
        return None, f"its stores cannot be used ({str(error).splitlines()[0]})"


def _epochs(run: Run, data: Data) -> dict[str, float]:
    drawn = run.steps * run.batch_size * data.train.examples_per_row
    known = {one.task.name: (one.rate, one.train.num_examples) for one in data.tasks if not one.train.is_stream}
    return {name: drawn * rate / examples for name, (rate, examples) in known.items() if examples}


def _width(run: Run, vocabulary: Vocabulary, side: str) -> int:
    """Tokens of a row on one side, from the settings alone."""
    packing = run.packing
    if isinstance(packing, Packed) and (given := getattr(packing, f"{side}_length")) is not None:
        return int(given)
    return max(_task_width(task, vocabulary, side) for task in run.tasks)


def _task_width(task: Task, vocabulary: Vocabulary, side: str) -> int:
    if not isinstance(task.objective, Supervised):
        return int(getattr(denoiser_of(task.objective, vocabulary), f"{side}_length"))
    width = getattr(task.objective, f"{side}_length")
    if width is None:
        raise UnknownLengthError(
            f"how long the {side} of task {task.name!r} are only its data can say: give --task.objective."
            f"{side}-length, or build its stores first (spanloom cache with the same --out)"
        )
    return int(width)
