"""The data of a run: batches of the training part by position, and the held-out part in order."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from spanloom.pipeline.batches import Batch, fill_batch, join_batches, to_batch
from spanloom.pipeline.build import Progress
from spanloom.pipeline.examples import DataError, Examples, PairExamples, StreamExamples, widths_of
from spanloom.pipeline.order import TrainingOrder, heldout_noise_keys
from spanloom.pipeline.store import Store, Warn, log, open_or_build_all
from spanloom.pipeline.unknown_text import warn_of_unknown_text
from spanloom.settings.objectives import FullLM, Supervised, TokenStream
from spanloom.settings.run import Run
from spanloom.settings.run_layout import STORES
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.sources import check_heldout, has_heldout
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary

VOCABULARY = "vocabulary"
PARTS = {"train": "the training text", "heldout": "the held-out text", VOCABULARY: "the vocabulary"}
"""What `Data.content` tells apart, in words."""
_BLOCK = 128  # examples made at a time: enough for NumPy, few enough for the caches


@dataclass(frozen=True)
class TextExample:
    """One example for showing, without padding."""

    raw: np.ndarray
    """Its tokens before noise (the targets of a pair), (n,) int32."""
    inputs: np.ndarray
    """Encoder tokens, end of sequence included, (s,) int32."""
    targets: np.ndarray
    """Decoder targets, end of sequence included, (t,) int32."""


class Dataset:
    """Numbered examples of one part of the data, as batches. It has no state: every answer follows from arguments."""

    def __init__(self, examples: Examples, *, seed: int, task: str, store: Store):
        self.store = store
        """The tokens behind it."""
        self._examples = examples
        self._order = TrainingOrder(examples.num_examples, seed, task)

    @property
    def num_examples(self) -> int:
        """Examples in one epoch."""
        return self._examples.num_examples

    def batch(self, first_example: int, batch_size: int) -> Batch:
        """Examples first_example..first_example + batch_size - 1 of the endless training order.

        Fields as `spanloom.pipeline.batches.to_batch` gives them, (batch_size, length) int32. A pure function of
        seed, data settings and arguments: any split of a range into batches has the same rows.
        """
        epochs_N, examples_N = self._order.draws(first_example, batch_size)
        return self._make(examples_N, self._order.noise_keys(epochs_N, examples_N))

    def eval_batches(self, batch_size: int, max_batches: int = 0) -> Iterator[Batch]:
        """Every example once, in order, with the same noise each time; at most `max_batches` batches unless 0.

        The last batch is filled with rows of padding whose weights are 0.
        """
        number = -(-self.num_examples // batch_size)
        for index in range(min(number, max_batches) if max_batches else number):
            examples_N = np.arange(index * batch_size, min((index + 1) * batch_size, self.num_examples))
            yield fill_batch(self._make(examples_N, heldout_noise_keys(examples_N)), batch_size)

    def raw(self, example: int) -> np.ndarray:
        """The tokens of example number `example` before noise (the targets of a pair), (n,) int32."""
        return self._examples.raw(example)

    def text_examples(self, count: int) -> list[TextExample]:
        """`count` examples spread evenly over the part (fewer if it has fewer), with the noise of `eval_batches`."""
        count = min(count, self.num_examples)
        examples_N = np.arange(count) * self.num_examples // max(count, 1)
        block = self._examples.make(examples_N, heldout_noise_keys(examples_N))
        rows = zip(examples_N.tolist(), block.inputs, block.targets, block.target_lengths, strict=True)
        return [
            TextExample(self._examples.raw(example), np.trim_zeros(inputs, "b"), targets[:length])
            for example, inputs, targets, length in rows
        ]

    def _make(self, examples_N: np.ndarray, keys_N: np.ndarray) -> Batch:
        blocks = [slice(start, start + _BLOCK) for start in range(0, max(len(examples_N), 1), _BLOCK)]
        return join_batches([to_batch(self._examples.make(examples_N[block], keys_N[block])) for block in blocks])


@dataclass(frozen=True)
class Data:
    """All data of a run."""

    train: Dataset
    """The training part."""
    heldout: Dataset | None
    """The held-out part; none if the source keeps none out."""
    vocabulary: Vocabulary
    """Text to ids."""
    reports: dict[str, ReadReport]
    """What was read for each part ("train", "heldout")."""
    lengths: dict[str, int]
    """Tokens of an encoder row ("encoder") and of a decoder row ("decoder")."""

    @property
    def content(self) -> dict[str, str]:
        """A hash of what each part holds ("train", "heldout"; see `Store.content`) and of the "vocabulary"."""
        parts = {"train": self.train, "heldout": self.heldout}
        texts = {split: part.store.content for split, part in parts.items() if part is not None}
        return {**texts, VOCABULARY: self.vocabulary.fingerprint()}


def open_data(
    run: Run,
    directory: Path,
    *,
    vocabulary: Vocabulary | None = None,
    progress: Progress | None = None,
    checksum: bool = False,
    workers: int = 1,
    warn: Warn = log.warning,
) -> Data:
    """Opens the data of a run, whose stores stand in `directory`/stores/<task>/<split> and are built where needed.

    `vocabulary`: the one to use, such as a checkpoint's own; by default it is built from the settings. `checksum`:
    every byte of the stores that are there is checked, of large ones too. `workers`: the most processes that
    make shards, see `spanloom.pipeline.build_workers`; scripts that ask for several need the usual
    `if __name__ == "__main__":`. `warn` is given what the user must know. Raises DataError where the data cannot be
    learned from as the settings stand, BadInputError on bad input, StorageError on a full disk, WorkerError if a
    process is killed, ValueError for settings that make no sense; each says what to change.
    """
    task = run.task
    vocabulary = build(task.vocabulary) if vocabulary is None else vocabulary
    _check_vocabulary_fits(run, vocabulary)
    if not isinstance(task.objective, Supervised):
        denoiser_of(task.objective, vocabulary)  # refuse impossible settings before hours of building
    directories = store_directories(task, directory)
    built = open_or_build_all(
        task, directories, vocabulary, progress=progress, checksum=checksum, workers=workers, warn=warn
    )
    data = data_of(run, built, vocabulary)
    warn_of_unknown_text(task, built["train"], vocabulary, warn)
    return data


def data_of(run: Run, built: Mapping[Split, Store], vocabulary: Vocabulary) -> Data:
    """The data of a run in stores that are there, whatever became of the text behind them; nothing is read but these.

    Raises DataError where they cannot be learned from as the settings stand.
    """
    task = run.task
    stores = {str(split): store for split, store in built.items()}
    examples = _examples_of(task, stores, vocabulary)
    _check_enough(task, stores, examples)
    parts = {
        split: Dataset(examples[split], seed=run.seed, task=task.name, store=store) for split, store in stores.items()
    }
    return Data(
        train=parts["train"],
        heldout=parts.get("heldout"),
        vocabulary=vocabulary,
        reports={split: store.report for split, store in stores.items()},
        lengths={"encoder": examples["train"].inputs_length, "decoder": examples["train"].targets_length},
    )


def store_directories(task: Task, directory: Path) -> dict[Split, Path]:
    """Where the stores of a task stand in a run directory. Raises DataError for a name that no directory can have."""
    base = Path(directory) / STORES / _directory_name(task.name)
    splits: tuple[Split, ...] = ("train", "heldout") if has_heldout(task.source) else ("train",)
    return {split: base / split for split in splits}


def _examples_of(task: Task, stores: dict[str, Store], vocabulary: Vocabulary) -> dict[str, Examples]:
    objective = task.objective
    if not isinstance(objective, Supervised):
        return {split: StreamExamples(store, objective, vocabulary) for split, store in stores.items()}
    widths = widths_of(stores, objective)
    return {split: PairExamples(store, widths, vocabulary) for split, store in stores.items()}


def _check_vocabulary_fits(run: Run, vocabulary: Vocabulary) -> None:
    highest = max(vocabulary.size - 1, *vocabulary.sentinels) if vocabulary.sentinels else vocabulary.size - 1
    if highest >= run.model.vocab_size:
        raise DataError(
            f"the vocabulary of task {run.task.name!r} has ids up to {highest}, but the model's embedding has "
            f"{run.model.vocab_size} rows: set model.vocab_size to at least {highest + 1} (a multiple of 128 is fast), "
            "or choose the vocabulary that belongs to this model"
        )


def _check_enough(task: Task, stores: dict[str, Store], examples: dict[str, Examples]) -> None:
    train = examples["train"]
    merged = isinstance(task.objective, TokenStream) and task.objective.merge
    if merged and isinstance(train, StreamExamples) and stores["train"].num_tokens < train.raw_length:
        side = "targets" if isinstance(task.objective, FullLM) else "inputs"
        raise DataError(
            f"the training part of task {task.name!r} has {stores['train'].num_tokens} tokens, but one example takes "
            f"{train.raw_length} ({side}_length = {getattr(train, f'{side}_length')}): add text, or use shorter {side}"
        )
    if train.num_examples == 0:
        raise DataError(f"the training part of task {task.name!r} is empty: check task.source.files")
    if "heldout" in examples and examples["heldout"].num_examples == 0:
        check_heldout(task.source, stores["train"].report, stores["heldout"].report)
        raise DataError(
            f"the documents of the held-out part of task {task.name!r} have no token in this vocabulary: name other "
            "held-out files (task.source.heldout_files), or set task.source.heldout_share to 0 to train without"
        )


def _directory_name(name: str) -> str:
    """The task's name as one path component; distinct names stay distinct."""
    if not name.strip("."):
        raise DataError(f"a task cannot be named {name!r}: its store is a directory of that name")
    return quote(name, safe=" ")
