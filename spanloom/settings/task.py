"""What a run learns from: sources and tasks, as settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from spanloom.settings.feature import MODEL_INPUTS, Feature
from spanloom.settings.function import Function, FunctionError, as_functions
from spanloom.settings.measures import METRICS, postprocessor_of
from spanloom.settings.objectives import Objective, SpanCorruption, Supervised
from spanloom.settings.row_sources import Errors as Errors
from spanloom.settings.row_sources import RowSource, in_memory
from spanloom.settings.vocabulary import Bytes, Vocabulary


@dataclass(frozen=True)
class TextFiles:
    """Text files of any common kind; one document a line, a file or a row."""

    files: tuple[str, ...] = ()
    """Paths or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz."""
    heldout_files: tuple[str, ...] = ()
    """Paths or globs of the held-out part; empty: a share of the documents is kept out."""
    heldout_share: float = 0.01
    """Share of the documents kept out of training when no held-out files are named; one where it comes to none."""
    field: str = "text"
    """Field of a row that holds the text, or a template such as '{title}: {text}'."""
    unit: Literal["line", "document"] = "line"
    """What one document is in a .txt file: each line, or the whole file."""
    format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto"
    """Format of the files; auto goes by the name."""
    encoding: str = "utf-8"
    """Text encoding of the files."""
    errors: Errors = "strict"
    """What to do with bad input (undecodable bytes, broken rows): stop, replace bytes, or skip and count."""


@dataclass(frozen=True)
class PythonDocs:
    """The English documentation that ships inside every CPython: pydoc topics and standard-library docstrings."""

    heldout_share: float = 0.05
    """Share of the documents kept out of training; one where it comes to none."""


@dataclass(frozen=True)
class PairFiles:
    """Files of input-target pairs: tsv, csv, jsonl or parquet."""

    files: tuple[str, ...] = ()
    """Paths or globs; compressed ones too."""
    heldout_files: tuple[str, ...] = ()
    """Paths or globs of the held-out part; empty: a share of the pairs is kept out."""
    heldout_share: float = 0.05
    """Share of the pairs kept out of training when no held-out files are named; one where it comes to none."""
    inputs: str = "inputs"
    """Column or field of the inputs, a template such as 'translate: {src}', or a column number from 0."""
    targets: str = "targets"
    """Column or field of the targets, a template, or a column number from 0."""
    header: Literal["auto", "yes", "no"] = "auto"
    """Whether tables have a header row; auto: yes if it names the columns asked for."""
    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = "auto"
    """Format of the files; auto goes by the name."""
    encoding: str = "utf-8"
    """Text encoding of the files."""
    errors: Errors = "strict"
    """What to do with bad input: stop, replace bytes, or skip the row and count it."""


Source = TextFiles | PythonDocs | PairFiles | RowSource


def heldout_of(source: Source) -> str | tuple[str, ...]:
    """The files or the split that a source names for the held-out part; empty where it keeps out a share instead."""
    named: str | tuple[str, ...] | None = getattr(source, "heldout_files", None) or getattr(source, "heldout_split", "")
    return named or ""


@dataclass(frozen=True)
class Task:
    """One thing to learn: a source, a vocabulary and an objective."""

    name: str
    """Name in metrics, stores and reports."""
    source: Source
    """Where the examples come from."""
    vocabulary: Vocabulary = field(default_factory=Bytes)
    """Text to ids."""
    objective: Objective = field(default_factory=SpanCorruption)
    """What makes inputs and targets of it."""
    version: str = "1"
    """Change it to rebuild the store although nothing else changed."""
    preprocessors: tuple[Function, ...] = ()
    """Functions of one example, applied in this order: from a row of the source to what the objective needs. What each
    returns decides what it does, see `spanloom.tasks.preprocessing`. Callables may be given."""
    features: tuple[Feature, ...] = ()
    """Fields that examples have then; empty: those that the objective needs."""
    deduplicate: tuple[str, ...] = ()
    """Fields of the source's rows; of rows that are equal in all of them only the first is kept. Empty: all are."""
    postprocess: Function | None = None
    """From a decoded text, and the example as `example` if it takes that, to the value that metrics compare; a callable
    or the name of one of `spanloom.evaluation.postprocessors`."""
    metrics: tuple[Function, ...] = ()
    """Functions from the lists of targets and predictions to a dict of numbers, or names of some of
    `spanloom.evaluation.metrics`; empty: exact match."""

    def __post_init__(self) -> None:
        """Callables become their names. Raises FunctionError for code that a run cannot write down, and TypeError for
        a data set in memory as the source."""
        if type(self.source).__module__.startswith("datasets."):
            raise TypeError(f"source of task {self.name!r}: {in_memory(self.source)}")
        names: dict[str, Mapping[str, str]] = {"preprocessors": {}, "metrics": METRICS}
        for name, known in names.items():
            object.__setattr__(self, name, as_functions(getattr(self, name), f"{name} of task {self.name!r}", known))
        if self.postprocess is not None:
            try:
                object.__setattr__(self, "postprocess", postprocessor_of(self.postprocess))
            except FunctionError as error:
                raise FunctionError(f"postprocess of task {self.name!r}: {error}") from None


def uses_rows(task: Task) -> bool:
    """Whether the task's examples are made of rows, one by one; else of text alone, many at a time, which is faster."""
    return bool(task.preprocessors or task.features) or isinstance(task.source, RowSource)


def features_of(task: Task) -> tuple[Feature, ...]:
    """The task's features: those that are set, or those of its objective."""
    if task.features:
        return task.features
    return MODEL_INPUTS if isinstance(task.objective, Supervised) else (Feature("text"),)
