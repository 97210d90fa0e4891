"""From documents to rows of a store: what runs once, when a store is built."""

import numpy as np

from spanloom.pipeline.shards import Ragged, ragged
from spanloom.settings.objectives import Supervised, separator_of
from spanloom.settings.task import Task
from spanloom.tasks.documents import Documents
from spanloom.vocabularies.vocabulary import Vocabulary


def columns_of(task: Task) -> tuple[str, ...]:
    """Columns of the task's store."""
    return ("inputs", "targets") if isinstance(task.objective, Supervised) else ("tokens",)


def fields_of(task: Task) -> tuple[str, ...]:
    """Fields that the task's documents must have."""
    return ("inputs", "targets") if isinstance(task.objective, Supervised) else ("text",)


def encode(task: Task, vocabulary: Vocabulary, documents: Documents, dtype: np.dtype) -> dict[str, Ragged]:
    """Ids of each column of the store, one row a document, of `dtype`.

    Text carries its separator at the end of each document; inputs and targets carry no end of
    sequence, which is appended when they are read. Documents without any token give no row.
    Raises ValueError where the documents lack a field.
    """
    if not {*fields_of(task)} <= {*documents}:
        field = next(field for field in fields_of(task) if field not in documents)
        raise ValueError(
            f"task {task.name!r} needs examples with the field {field!r}, but its source gives {sorted(documents)}; "
            "supervised tasks read pairs (PairFiles), all other objectives text (TextFiles, PythonDocs)"
        )
    if isinstance(task.objective, Supervised):
        return {name: ragged(*vocabulary.encode_utf8(documents[name], dtype)) for name in columns_of(task)}
    end = vocabulary.eos_id if separator_of(task.objective) == "eos" else None
    values, lengths = vocabulary.encode_utf8(documents["text"], dtype, end)
    return {"tokens": ragged(values, lengths[lengths > 0])}
