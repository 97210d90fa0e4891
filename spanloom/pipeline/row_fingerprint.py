"""What of preprocessors and features decides the content of a store, and probe rows that show what they give."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.pipeline.feature_ids import ordered_features
from spanloom.pipeline.row_encoder import RowEncoder
from spanloom.pipeline.shards import Ragged
from spanloom.settings.serialize import to_json
from spanloom.settings.task import Task
from spanloom.tasks import functions, rows
from spanloom.tasks.documents import Documents
from spanloom.tasks.preprocessing import PreprocessorError, probe_key
from spanloom.tasks.shown import shown

_LONGEST_PROBE = 2**14
_SHOWN = 1000  # bytes of text


def row_facts(task: Task, encoder: RowEncoder) -> dict[str, Any]:
    """What decides what rows become, as JSON data; an end of sequence does not, being put there when they are read."""
    vocabularies = encoder.vocabularies
    return {
        "rows": rows.FORMAT,
        "preprocessors": [functions.described(function) for function in task.preprocessors],
        "features": [
            [feature.name, vocabularies[feature.name].fingerprint(), feature.dtype, feature.required]
            for feature in ordered_features(task)
        ],
        **({"run": to_json(task.objective)} if "run" in encoder.chain.takes else {}),
    }


def code_changes(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> str:
    """What differs between the preprocessors of two stores, in words."""
    if [one["name"] for one in old] != [one["name"] for one in new]:
        return f"{_names(old)} -> {_names(new)}"
    said = []
    for before, now in zip(old, new, strict=True):
        name = now["name"].rpartition(":")[2]
        if before["arguments"] != now["arguments"]:
            said.append(f"{name} has other arguments: {_short(before['arguments'])} -> {_short(now['arguments'])}")
        elif before["code"] != now["code"]:
            said.append(f"the code of {name} was edited")
    return "; ".join(said)


def make_row_probes(encoder: RowEncoder, documents: Documents, most: int) -> list[dict[str, Any]]:
    """The first rows, those that are not long, with a hash of the ids they come to in the end."""
    probes = []
    for number, row in enumerate(documents[rows.ROW][:most]):
        if len(row) <= _LONGEST_PROBE:
            made = encoder.probe({rows.ROW: [row]}, number, probe_key(number))
            packed = base64.b64encode(row).decode("ascii")
            probes.append({"row": packed, "number": number, "example": _texts(encoder, made), "ids": hash_of(made)})
    return probes


def row_probe_changed(encoder: RowEncoder, probe: Mapping[str, Any]) -> bool:
    """Whether a probe row comes to other ids now, or fails."""
    row = base64.b64decode(probe["row"])
    try:
        made = encoder.probe({rows.ROW: [row]}, probe["number"], probe_key(probe["number"]))
    except PreprocessorError:
        return True
    return hash_of(made) != probe["ids"]


def hash_of(columns: Mapping[str, Ragged]) -> str:
    """SHA-256, in hexadecimal, of rows of a store."""
    digest = hashlib.sha256()
    for name, made in columns.items():
        digest.update(f"{name} {np.diff(made.offsets).tolist()} ".encode())
        digest.update(made.values.tobytes())
    return digest.hexdigest()


def _texts(encoder: RowEncoder, made: Mapping[str, Ragged]) -> dict[str, str]:
    """The beginning of the text of each feature."""
    found = {}
    for feature in encoder.features:
        column = next((made[name] for name in (feature.name, "tokens") if name in made), None)
        if feature.dtype == "int32" and column is not None:
            found[feature.name] = encoder.vocabularies[feature.name].decode(column.values[:_SHOWN])
    return found


def _names(described: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(one["name"].rpartition(":")[2] for one in described) or "none"


def _short(arguments: Any) -> str:
    return shown(json.dumps(arguments, ensure_ascii=False), 80)
