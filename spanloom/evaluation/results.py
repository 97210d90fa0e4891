"""What was measured of a finished run, kept beside it: asking again costs nothing, and never shows what was once so."""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spanloom.evaluation.fill import Piece
from spanloom.pipeline.durable import write_file

FORMAT = 2


@dataclass(frozen=True)
class Results:
    """What a user is shown once a run is done."""

    text: str
    """As it is printed; empty if nothing was asked for."""
    kind: str = ""
    """Kind of the line in metrics.jsonl; empty: none."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The numbers of that line."""
    fills: tuple[tuple[Piece, ...], ...] = ()
    """Examples of masked text, filled in."""
    hint: str = ""
    """A line of held-out text with a mask, to try; empty: none."""


def key_of(**deciding: Any) -> str:
    """A hash of all that decides the results, given as JSON-ready values."""
    text = json.dumps({"format": FORMAT, **deciding}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_results(path: Path, key: str) -> Results | None:
    """The results kept under this key; None if there are none, if the file is damaged, or if it holds others."""
    try:
        whole = json.loads(path.read_bytes())
        body = whole["results"]
        if whole["key"] != key or whole["crc32"] != _crc32(key, body):
            return None
        fills = tuple(tuple(Piece(*piece) for piece in pieces) for pieces in body["fills"])
        return Results(body["text"], body["kind"], body["values"], fills, body["hint"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def write_results(path: Path, key: str, results: Results) -> None:
    """Keep results under a key, in the place of what was there; whole or not at all. Raises StorageError, OSError."""
    body = {
        "text": results.text,
        "kind": results.kind,
        "values": dict(results.values),
        "fills": [[[piece.text, piece.guess, piece.known] for piece in pieces] for pieces in results.fills],
        "hint": results.hint,
    }
    whole = json.dumps({"key": key, "crc32": _crc32(key, body), "results": body}, indent=1)
    write_file(path, lambda file: file.write(whole.encode()))


def _crc32(key: str, body: Any) -> int:
    return zlib.crc32(json.dumps([key, body], sort_keys=True).encode())
