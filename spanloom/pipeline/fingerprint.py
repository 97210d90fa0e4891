"""What decides the content of a store, and what the difference is between two of them."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from spanloom.pipeline.row_encoder import RowEncoder
from spanloom.pipeline.row_fingerprint import code_changes, hash_of, make_row_probes, row_facts, row_probe_changed
from spanloom.pipeline.tokenization import Encoder, encoder_of
from spanloom.settings.objectives import TokenStream, separator_of
from spanloom.settings.task import Task
from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split
from spanloom.vocabularies.vocabulary import Vocabulary

FORMAT = 3
"""Raised when the same settings and text give other stores: 2 chooses held-out documents by their text,
and gives texts that fill a shard one of their own; 3 takes Unicode's white space for blank in text files, too."""
NUM_PROBES = 64
_PROBE_CHARACTERS = 1000

PREPROCESSING = ("deduplicate", "preprocessors", "features", "run")
"""What decides, beside the text and the vocabulary, what is learnt of it; a fingerprint may lack any of them."""

_MEANINGS = {
    "format": "the format of stores",
    "split": "the part of the data",
    "columns": "the columns",
    "source": "the source's text files",
    "source_settings": "the source's settings",
    "vocabulary": "the vocabulary",
    "separator": "the separator between documents",
    "version": "the task's version",
    "shard_bytes": "the size of shards",
    "deduplicate": "the fields of which rows must not be repeated",
    "rows": "the format of packed rows",
    "preprocessors": "the preprocessors",
    "features": "the features",
    "run": "the objective, which a preprocessor asks for",
}


def settings_fingerprint(task: Task, split: Split, vocabulary: Vocabulary, shard_bytes: int) -> dict[str, Any]:
    """Everything but the source's files that decides a store, as JSON data."""
    objective, encoder = task.objective, encoder_of(task, vocabulary, split)
    return {
        "format": FORMAT,
        "split": split,
        "columns": list(encoder.dtypes),
        "source_settings": {"kind": type(task.source).__name__, **_as_json(dataclasses.asdict(task.source))},
        "vocabulary": vocabulary.fingerprint(),
        "separator": separator_of(objective) if isinstance(objective, TokenStream) else None,
        "version": task.version,
        "shard_bytes": shard_bytes,
        **({"deduplicate": list(task.deduplicate)} if task.deduplicate else {}),
        **(row_facts(task, encoder) if isinstance(encoder, RowEncoder) else {}),
    }


def changes(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, in words; empty if nothing does."""
    found = []
    for key in sorted({*stored, *wanted}):
        old, new = stored.get(key), wanted.get(key)
        if old == new:
            continue
        if key == "preprocessors" and old is not None and new is not None:
            details = code_changes(old, new)
        elif isinstance(old, dict) and isinstance(new, dict):
            names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
            details = ", ".join(f"{name} {old.get(name)!r} -> {new.get(name)!r}" for name in names)
        else:
            details = f"{_short(old)} -> {_short(new)}"
        found.append(f"{_MEANINGS.get(key, key)} ({details})")
    return found


def make_probes(task: Task, vocabulary: Vocabulary, documents: Documents) -> list[dict[str, Any]]:
    """The beginnings of the first documents with a hash of the ids they give: a hash of code would miss closures."""
    encoder, probes = encoder_of(task, vocabulary), []
    if isinstance(encoder, RowEncoder):
        return make_row_probes(encoder, documents, NUM_PROBES)
    first = ([_beginning(text) for text in texts[:NUM_PROBES]] for texts in documents.values())
    for texts in zip(*first, strict=True):
        beginning = dict(zip(documents, texts, strict=True))
        probes.append({"example": beginning, "ids": _hash_of_rows(encoder, beginning)})
    return probes


def probes_changed(task: Task, vocabulary: Vocabulary, probes: Sequence[Mapping[str, Any]]) -> int:
    """How many of the probes give other ids now than when the store was built."""
    encoder = encoder_of(task, vocabulary)
    if isinstance(encoder, RowEncoder):
        return sum(row_probe_changed(encoder, probe) for probe in probes)
    return sum(_hash_of_rows(encoder, probe["example"]) != probe["ids"] for probe in probes)


def _beginning(text: bytes) -> str:
    """A text's first characters, found without looking at the rest: none takes more than four bytes."""
    return text[: 4 * _PROBE_CHARACTERS].decode("utf-8", "ignore")[:_PROBE_CHARACTERS]


def _hash_of_rows(encoder: Encoder, example: Mapping[str, str]) -> str:
    return hash_of(encoder.probe({name: [text.encode("utf-8")] for name, text in example.items()}, 0, 0))


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 16 else f"{text[:12]}..."
