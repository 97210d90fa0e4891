"""OUT/commands.jsonl: one line a start, with the command, where and when, the version, and what was decided."""

import datetime
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import spanloom
from spanloom.pipeline.durable import explain_full_disk, json_object

COMMANDS_FILE = "commands.jsonl"


def add_command(directory: Path, command: Sequence[str], **decided: Any) -> None:
    """Append a line; `decided` holds JSON data. A line torn by a full disk or a kill is left as it is, by itself.

    Raises StorageError on a full disk.
    """
    entry = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "directory": os.getcwd(),
        "version": spanloom.__version__,
        **decided,
    }
    path = directory / COMMANDS_FILE
    before = path.read_bytes() if path.is_file() else b""
    torn = bool(before) and not before.endswith(b"\n")
    line = json.dumps(entry).encode("ascii")  # words may hold bytes that are no UTF-8
    with explain_full_disk(path), path.open("ab") as file:
        file.write(b"\n" * torn + line + b"\n")


def accepted_at(directory: Path, step: int) -> list[str]:
    """Names of the settings whose changes were accepted when the run went on from the checkpoint of `step`."""
    found = (entry.get("accepted") for entry in _entries(directory) if entry.get("step") == step)
    return [name for names in found if isinstance(names, list) for name in names if isinstance(name, str)]


def forked_from(directory: Path) -> Path | None:
    """The checkpoint that the run in `directory` began with as a fork; None if it began by itself."""
    begun = [entry for entry in _entries(directory) if entry.get("step") is None or "forked_from" in entry]
    origin = begun[-1].get("forked_from") if begun else None
    return Path(origin) if isinstance(origin, str) else None


def _entries(directory: Path) -> Iterator[dict[str, Any]]:
    """The lines, but for those that are damaged."""
    path = directory / COMMANDS_FILE
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        if (entry := json_object(line)) is not None:
            yield entry
