"""From examples to rows of a store: what runs once, when a store is built."""

from collections.abc import Mapping, Sequence

import numpy as np

from spanloom.settings.task import SpanCorruption, Task
from spanloom.vocabularies.vocabulary import Vocabulary

Example = Mapping[str, str]
Rows = dict[str, list[np.ndarray]]


def columns_of(task: Task) -> tuple[str, ...]:
    """Columns of the task's store."""
    return ("tokens",) if isinstance(task.objective, SpanCorruption) else ("inputs", "targets")


def fields_of(task: Task) -> tuple[str, ...]:
    """Fields that the task's examples must have."""
    return ("text",) if isinstance(task.objective, SpanCorruption) else ("inputs", "targets")


def separator_of(objective: SpanCorruption) -> str:
    """eos or none: what stands between documents. SeqIO's joining of batches of documents puts nothing there."""
    if objective.separator is not None:
        return objective.separator
    return "none" if objective.concat_documents else "eos"


def encode_rows(task: Task, vocabulary: Vocabulary, examples: Sequence[Example]) -> Rows:
    """Ids of each column for each example, (n,) each.

    Text for span corruption carries its separator at the end of each document; inputs and targets carry no end of
    sequence, which is appended when they are read. Documents without any token give no row.
    Raises ValueError where an example lacks a field.
    """
    for field in fields_of(task):
        if any(field not in example for example in examples):
            found = next(sorted(example) for example in examples if field not in example)
            raise ValueError(
                f"task {task.name!r} needs examples with the field {field!r}, but its source gives {found}; "
                "span corruption reads text (TextFiles, PythonDocs), supervised tasks read pairs (PairFiles)"
            )
    if not isinstance(task.objective, SpanCorruption):
        return {name: vocabulary.encode_batch([example[name] for example in examples]) for name in columns_of(task)}
    documents = [ids for ids in vocabulary.encode_batch([example["text"] for example in examples]) if len(ids)]
    if separator_of(task.objective) == "eos":
        eos = np.array([vocabulary.eos_id], np.int32)
        documents = [np.concatenate([ids, eos]) for ids in documents]
    return {"tokens": documents}
