"""The data of a run: batches of the training part by position, and the held-out part of each task in order."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from spanloom.pipeline.build_progress import Progress
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.eras import Eras, Resumption
from spanloom.pipeline.examples import DataError, Examples, StreamExamples
from spanloom.pipeline.left_out import none_left
from spanloom.pipeline.open_task import Part as Part
from spanloom.pipeline.open_task import check_task, check_vocabulary_fits, open_task
from spanloom.pipeline.positions import TrainingRows
from spanloom.pipeline.several import have_stores, naming, refuse_missing
from spanloom.pipeline.spool.dataset import StreamDataset
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.spool.opening import spool_directory
from spanloom.pipeline.spool.shards import report_of, same_content
from spanloom.pipeline.spool.spool import Spool
from spanloom.pipeline.store import Store, Warn, log
from spanloom.pipeline.task_examples import examples_of
from spanloom.pipeline.training_rows import rows_of
from spanloom.pipeline.unknown_text import warn_of_unknown_text
from spanloom.settings.mixture import Mixture
from spanloom.settings.objectives import FullLM, TokenStream
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.run_layout import STORES
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import check_heldout, has_heldout
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary

VOCABULARY = "vocabulary"
_PARTS = {"train": "the training text", "heldout": "the held-out text", VOCABULARY: "the vocabulary"}


def in_words(part: str) -> str:
    """What a name in `Data.content` stands for."""
    task, _, split = part.rpartition("/")
    return _PARTS[split] + (f" of {task}" if task else "")


def part_name(data: Task | Mixture, task: Task, split: Split) -> str:
    """The name in `Data.content` of one part of a task; a task that is a run's only one is not named."""
    return split if isinstance(data, Task) else f"{task.name}/{split}"


@dataclass(frozen=True)
class TaskData:
    """The data of one task."""

    task: Task
    """Its settings."""
    train: Dataset
    """The training part."""
    heldout: Dataset | None
    """The held-out part; none if the source keeps none out."""
    reports: dict[Split, ReadReport]
    """What was read for each part."""
    rate: float = 1.0
    """Share of the run's examples that are drawn from it."""


@dataclass(frozen=True)
class Data:
    """All data of a run."""

    settings: Task | Mixture
    """What it was opened from."""
    train: TrainingRows
    """What is trained on, by position."""
    tasks: tuple[TaskData, ...]
    """The data of each task, in the order of the settings."""
    vocabulary: Vocabulary
    """Text to ids."""
    lengths: dict[str, int]
    """Tokens of an encoder row ("encoder") and of a decoder row ("decoder")."""
    eras: Eras
    """How the tasks are drawn, and were before the settings changed."""

    @property
    def heldout(self) -> dict[str, Dataset]:
        """The held-out parts of the tasks that have one, by name of the task."""
        return {one.task.name: one.heldout for one in self.tasks if one.heldout is not None}

    @property
    def content(self) -> dict[str, str]:
        """A hash of what each part holds (see `part_name`, `Store.content`), and of the "vocabulary"."""
        parts: list[tuple[Task, Split, Dataset | None]] = []
        for one in self.tasks:
            parts += [(one.task, "train", one.train), (one.task, "heldout", one.heldout)]
        texts = {part_name(self.settings, task, split): part.content for task, split, part in parts if part is not None}
        return {**texts, VOCABULARY: self.vocabulary.fingerprint()}

    def content_since(self, before: Mapping[str, str]) -> dict[str, str]:
        """`content` as it was when it was `before`: streams have grown since, where they are still the same."""
        now = self.content
        for one in self.tasks:
            if isinstance(one.train, StreamDataset):
                name = part_name(self.settings, one.task, "train")
                if same_content(one.train.spool.index, before.get(name, "")):
                    now[name] = before[name]
        return now


def open_data(
    run: Run,
    directory: Path,
    *,
    vocabulary: Vocabulary | None = None,
    resumption: Resumption | None = None,
    progress: Progress | None = None,
    checksum: bool = False,
    workers: int = 1,
    warn: Warn = log.warning,
) -> Data:
    """Opens the data of a run, whose stores stand in `directory`/stores/<task>/<split> and are built where needed.

    `vocabulary`: the one to use, such as a checkpoint's own; by default it is built from the settings. `resumption`:
    where a run goes on whose tasks may be drawn otherwise from there on. `checksum`:
    every byte of the stores that are there is checked, of large ones too. `workers`: the most processes that
    make shards, see `spanloom.pipeline.build_workers`; scripts that ask for several need the usual
    `if __name__ == "__main__":`. `warn` is given what the user must know. Raises DataError where the data cannot be
    learned from as the settings stand, BadInputError on bad input, StorageError on a full disk, WorkerError if a
    process is killed, ValueError for settings that make no sense; each says what to change.
    """
    vocabulary = build(run.vocabulary) if vocabulary is None else vocabulary
    check_vocabulary_fits(run, vocabulary)
    for task in run.tasks:
        check_task(run, task, vocabulary, warn)
    places_of = {task.name: store_directories(task, directory) for task in run.tasks}
    refuse_missing([task for task in run.tasks if not have_stores(places_of[task.name].values())])
    built: dict[str, dict[Split, Part]] = {}
    stands = {} if resumption is None else resumption.streams
    for task in run.tasks:
        with naming(task, several=len(run.tasks) > 1):
            built[task.name] = open_task(
                task,
                places_of[task.name],
                vocabulary,
                stands=stands.get(task.name),
                progress=progress,
                checksum=checksum,
                workers=workers,
                warn=warn,
            )
    data = data_of(run, built, vocabulary, resumption, warn)
    for one in data.tasks:
        warn_of_unknown_text(one.task, one.train.store, vocabulary, warn)
    return data


def data_of(
    run: Run,
    built: Mapping[str, Mapping[Split, Part]],
    vocabulary: Vocabulary,
    resumption: Resumption | None = None,
    warn: Warn = log.warning,
) -> Data:
    """The data of a run in stores, by task and part, whatever became of the text behind them; nothing else is read.

    Raises DataError where they cannot be learned from as the settings stand.
    """
    tasks = []
    for task in run.tasks:
        with naming(task, several=len(run.tasks) > 1):
            tasks.append(task_data(task, built[task.name], vocabulary, run.seed, warn))
    rows, eras = rows_of(run, {one.task.name: one.train for one in tasks}, resumption)
    total = sum(eras[-1].rates.values())
    tasks = [replace(one, rate=eras[-1].rates[one.task.name] / total) for one in tasks]
    lengths = {"encoder": rows.inputs_length, "decoder": rows.targets_length}
    return Data(run.task, rows, tuple(tasks), vocabulary, lengths, eras)


def task_data(
    task: Task, built: Mapping[Split, Part], vocabulary: Vocabulary, seed: int, warn: Warn = log.warning
) -> TaskData:
    """The data of one task in its stores; `warn` is given what a stream has to say. Raises DataError where they cannot
    be learned from.
    """
    stores = {split: part for split, part in built.items() if isinstance(part, Store)}
    if isinstance(index := built["train"], SpoolIndex):
        return _stream_data(task, Spool(task, vocabulary, index, warn), stores, seed)
    examples = examples_of(task, stores, vocabulary)
    _check_enough(task, stores, examples)
    parts = {split: Dataset(examples[split], seed=seed, task=task.name, store=store) for split, store in stores.items()}
    reports = {split: store.report for split, store in stores.items()}
    return TaskData(task, parts["train"], parts.get("heldout"), reports)


def _stream_data(task: Task, spool: Spool, stores: Mapping[Split, Store], seed: int) -> TaskData:
    train, heldout = StreamDataset(spool, seed=seed), None
    reports: dict[Split, ReadReport] = {"train": report_of(spool.index)}
    if stores:
        examples = examples_of(task, stores, spool.vocabulary)["heldout"]
        if examples.num_examples == 0:
            _refuse_all_left_out(task, "held-out", stores["heldout"].report)
            raise DataError(
                f"the held-out part of task {task.name!r} is empty: raise task.source.heldout_share or heldout_take, "
                "or set heldout_share to 0 to train without"
            )
        heldout = Dataset(examples, seed=seed, task=task.name, store=stores["heldout"])
        reports["heldout"] = stores["heldout"].report
    return TaskData(task, train, heldout, reports)


def store_directories(task: Task, directory: Path) -> dict[Split, Path]:
    """Where the stores of a task stand in a run directory. Raises DataError for a name that no directory can have."""
    base = Path(directory) / STORES / _directory_name(task.name)
    splits: tuple[Split, ...] = ("train", "heldout") if has_heldout(task.source) else ("train",)
    places = {split: base / split for split in splits}
    return {**places, "train": spool_directory(places["train"])} if is_stream(task.source) else places


def _check_enough(task: Task, stores: Mapping[Split, Store], examples: Mapping[Split, Examples]) -> None:
    train = examples["train"]
    merged = isinstance(task.objective, TokenStream) and task.objective.merge
    if merged and isinstance(train, StreamExamples) and stores["train"].num_tokens < train.raw_length:
        side = "targets" if isinstance(task.objective, FullLM) else "inputs"
        raise DataError(
            f"the training part of task {task.name!r} has {stores['train'].num_tokens} tokens, but one example takes "
            f"{train.raw_length} ({side}_length = {getattr(train, f'{side}_length')}): add text, or use shorter {side}"
        )
    if train.num_examples == 0:
        _refuse_all_left_out(task, "training", stores["train"].report)
        left_out = " and its preprocessors" if task.preprocessors else ""
        raise DataError(f"the training part of task {task.name!r} is empty: check task.source.files{left_out}")
    if "heldout" in examples and examples["heldout"].num_examples == 0:
        check_heldout(task.source, stores["train"].report, stores["heldout"].report)
        _refuse_all_left_out(task, "held-out", stores["heldout"].report)
        raise DataError(
            f"the documents of the held-out part of task {task.name!r} have no token in this vocabulary: name other "
            "held-out files (task.source.heldout_files), or set task.source.heldout_share to 0 to train without"
        )


def _refuse_all_left_out(task: Task, part: str, report: ReadReport) -> None:
    if why := none_left(task, report):
        raise DataError(f"the {part} part of task {task.name!r} is empty: {why}")


def _directory_name(name: str) -> str:
    """The task's name as one path component; distinct names stay distinct."""
    if not name.strip("."):
        raise DataError(f"a task cannot be named {name!r}: its store is a directory of that name")
    return quote(name, safe=" ")
