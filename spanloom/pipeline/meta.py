"""The description beside a store's shards, meta.json: counts, checksums, fingerprint, what was read."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.durable import write_file
from spanloom.pipeline.shards import DamagedStoreError, Ragged

META = "meta.json"
_BLOCK = 2**20


def shard_entry(
    path: Path,
    columns: Mapping[str, Ragged],
    unknown: Mapping[str, int],
    *,
    examples: int,
    text_bytes: int,
    characters: int,
    text_hash: str,
) -> dict[str, Any]:
    """Description of one written shard; `unknown` has the id of what the vocabulary lacks, of columns of tokens."""
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": file_hash(path),
        "examples": examples,
        "text_bytes": text_bytes,
        "characters": characters,
        "text_sha256": text_hash,
        "columns": {name: _column_counts(column, unknown.get(name)) for name, column in columns.items()},
    }


def _column_counts(column: Ragged, unk_id: int | None) -> dict[str, Any]:
    lengths = np.diff(column.offsets)
    blocks = range(0, len(column.values) if unk_id is not None else 0, _BLOCK)
    return {
        "rows": len(lengths),
        "tokens": len(column.values),
        "unknown": sum(int(np.count_nonzero(column.values[i : i + _BLOCK] == unk_id)) for i in blocks),
        "longest": int(lengths.max(initial=0)),
        "histogram": _histogram(lengths),
    }


def _histogram(lengths: np.ndarray) -> dict[str, int]:
    """Rows by the least power of two that is at least their length; those of empty rows under 0."""
    exponents = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    counts = np.bincount(np.where(lengths == 0, 0, exponents + 1)).tolist()
    return {str(2 ** (place - 1) if place else 0): count for place, count in enumerate(counts) if count}


def total_counts(entries: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, Any]:
    """Counts of a whole store from those of its shards; `histogram` has rows by length, rounded up to 2^n."""
    entries = list(entries)
    columns = {}
    for name in names:
        parts = [entry["columns"][name] for entry in entries]
        histogram: dict[int, int] = {}
        for part in parts:
            for bucket, count in part["histogram"].items():
                histogram[int(bucket)] = histogram.get(int(bucket), 0) + count
        columns[name] = {
            "rows": sum(part["rows"] for part in parts),
            "tokens": sum(part["tokens"] for part in parts),
            "unknown": sum(part["unknown"] for part in parts),
            "longest": max((part["longest"] for part in parts), default=0),
            "histogram": {str(bucket): histogram[bucket] for bucket in sorted(histogram)},
        }
    return {
        "examples": sum(entry["examples"] for entry in entries),
        "text_bytes": sum(entry["text_bytes"] for entry in entries),
        "characters": sum(entry["characters"] for entry in entries),
        "columns": columns,
    }


def write_meta(directory: Path, meta: Mapping[str, Any]) -> None:
    """Writes meta.json with a checksum of its own, whole or not at all."""
    data = json.dumps({**meta, "self_sha256": _own_hash(meta)}, indent=1, sort_keys=True, ensure_ascii=False)
    write_file(directory / META, lambda file: file.write(data.encode() + b"\n"))


def read_meta(directory: Path) -> dict[str, Any]:
    """Reads meta.json. Raises FileNotFoundError if there is none, DamagedStoreError if it is not what was written."""
    path = directory / META
    try:
        meta = json.loads(path.read_bytes())
        claimed = meta.pop("self_sha256")
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DamagedStoreError(f"{path} cannot be read: {error}") from error
    if claimed != _own_hash(meta):
        raise DamagedStoreError(f"{path} is not as it was written (its checksum differs)")
    return meta


def check_file(path: Path, entry: Mapping[str, Any], *, checksum: bool) -> None:
    """Raises DamagedStoreError unless the shard has its recorded size and, if asked for, its recorded checksum."""
    if not path.is_file():
        raise DamagedStoreError(f"{path} is missing")
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise DamagedStoreError(f"{path} has {size} bytes where {entry['bytes']} were written")
    if checksum and file_hash(path) != entry["sha256"]:
        raise DamagedStoreError(f"{path} is not as it was written (its checksum differs)")


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own_hash(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
