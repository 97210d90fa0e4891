"""From documents to rows of a store: what runs once, when a store is built."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from spanloom.pipeline.shards import Ragged, ragged, token_dtype
from spanloom.settings.objectives import Supervised, separator_of
from spanloom.settings.task import Task, uses_rows
from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split
from spanloom.vocabularies.vocabulary import Vocabulary


@dataclass(frozen=True)
class Encoded:
    """Rows of a store, and what they were made of."""

    columns: dict[str, Ragged]
    """Rows of each column."""
    text_bytes: int = 0
    """Bytes of text (UTF-8) that was tokenized."""
    characters: int = 0
    """Its characters."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Function -> how many examples it left out."""


class Encoder(Protocol):
    """Makes rows of a store out of a task's documents."""

    dtypes: dict[str, np.dtype]
    """Columns of the store."""
    unknown: dict[str, int]
    """The id of what the vocabulary lacks, of columns of tokens."""
    counts_text: bool
    """Whether `Encoded` tells how much text it was; else that is what the documents hold."""
    numbered: bool
    """Whether a document's rows depend on its number."""

    def encode(self, documents: Documents, first: int) -> Encoded:
        """The rows of some documents, the first of which has this number in its part."""

    def probe(self, documents: Documents, first: int, key: int) -> dict[str, Ragged]:
        """The ids that some documents come to in the end, whenever it is that they are made of them."""


def encoder_of(task: Task, vocabulary: Vocabulary, split: Split = "train") -> Encoder:
    """What makes the store of one part of a task. Raises FunctionError for code that cannot be loaded."""
    if not uses_rows(task):
        return TextEncoder(task, vocabulary)
    from spanloom.pipeline.row_encoder import RowEncoder

    return RowEncoder(task, vocabulary, split)


def columns_of(task: Task) -> tuple[str, ...]:
    """Columns of the task's store, where that is made of text."""
    return ("inputs", "targets") if isinstance(task.objective, Supervised) else ("tokens",)


def fields_of(task: Task) -> tuple[str, ...]:
    """Fields that the task's documents must have."""
    return ("inputs", "targets") if isinstance(task.objective, Supervised) else ("text",)


class TextEncoder:
    """Tokens of documents as they are."""

    counts_text = False
    numbered = False

    def __init__(self, task: Task, vocabulary: Vocabulary):
        self._task = task
        self._vocabulary = vocabulary
        self.dtypes = {name: token_dtype(vocabulary.size) for name in columns_of(task)}
        self.unknown = dict.fromkeys(columns_of(task), vocabulary.unk_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return TextEncoder, (self._task, self._vocabulary)

    def encode(self, documents: Documents, first: int = 0) -> Encoded:
        """One row a document."""
        return Encoded(encode(self._task, self._vocabulary, documents, token_dtype(self._vocabulary.size)))

    def probe(self, documents: Documents, first: int = 0, key: int = 0) -> dict[str, Ragged]:
        """The same rows, whatever the size of the vocabulary."""
        return encode(self._task, self._vocabulary, documents, np.dtype("<i4"))


def encode(task: Task, vocabulary: Vocabulary, documents: Documents, dtype: np.dtype) -> dict[str, Ragged]:
    """Ids of each column of the store, one row a document, of `dtype`.

    Text carries its separator at the end of each document; inputs and targets carry no end of
    sequence, which is appended when they are read. Documents without any token give no row.
    Raises ValueError where the documents lack a field.
    """
    if not {*fields_of(task)} <= {*documents}:
        name = next(name for name in fields_of(task) if name not in documents)
        raise ValueError(
            f"task {task.name!r} needs examples with the field {name!r}, but its source gives {sorted(documents)}; "
            "supervised tasks read pairs (PairFiles), all other objectives text (TextFiles, PythonDocs); or name "
            "preprocessors that make the field"
        )
    if isinstance(task.objective, Supervised):
        return {name: ragged(*vocabulary.encode_utf8(documents[name], dtype)) for name in columns_of(task)}
    end = vocabulary.eos_id if separator_of(task.objective) == "eos" else None
    values, lengths = vocabulary.encode_utf8(documents["text"], dtype, end)
    return {"tokens": ragged(values, lengths[lengths > 0])}
