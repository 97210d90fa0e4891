"""Paths and globs to a list of files, always in the same order, and what a file holds by its name."""

import glob
import os
from collections.abc import Sequence

from spanloom.settings.nearest import nearest
from spanloom.tasks.compression import SUFFIXES
from spanloom.tasks.read_report import BadInputError, ReadReport

FORMATS = {
    ".txt": "txt", ".text": "txt",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
"""File name endings of the formats that are read; a compression's ending may follow."""


def list_files(patterns: Sequence[str], report: ReadReport | None = None) -> list[str]:
    """The files that paths and globs (`~`, `*`, `?`, `[...]`, `**`) name: sorted by path, each file once.

    Raises BadInputError for a pattern without a file, naming what is near, for a folder, and for what is no
    regular file.
    """
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    if not patterns:
        raise BadInputError("files", "no files are named", "Name paths or globs, such as --text 'corpus/*.txt'")
    paths = sorted({path for pattern in patterns for path in _matches(pattern)})
    files: dict[str, str] = {}
    for path in paths:
        first = files.setdefault(os.path.realpath(path), path)
        if first != path and report is not None:
            report.note("same file", f"{path} is {first} under another name: read once")
    return sorted(files.values())


def format_of(path: str, asked: str) -> str:
    """The format of a file: what is asked for, or for 'auto' by the name's ending before a compression's.

    Raises BadInputError where the name does not tell.
    """
    if asked != "auto":
        return asked
    stem, ending = os.path.splitext(path.lower())
    if ending in SUFFIXES:
        stem, ending = os.path.splitext(stem)
    if ending in FORMATS:
        return FORMATS[ending]
    known = ", ".join(sorted(FORMATS))
    raise BadInputError(
        path,
        f"the name does not tell the format (its ending is {ending!r}; known are {known}, then perhaps .gz, .zst, ...)",
        "Say it: --format txt (or jsonl, csv, tsv, parquet)",
        reason="unknown format",
    )


def _matches(pattern: str) -> list[str]:
    if not pattern.strip():
        raise BadInputError("files", "one name is empty", "Name paths or globs (is a variable of the shell unset?)")
    if "://" in pattern:
        raise BadInputError(pattern, "remote paths are not read", "Copy the files to a local disk, or mount them")
    path = os.path.expanduser(pattern)
    if os.path.lexists(path):
        return [_regular(path)]
    found = glob.glob(path, recursive=True)
    files = [match for match in found if not os.path.isdir(match)]
    if not files:
        raise BadInputError(pattern, *_why_nothing(path, found))
    return [_regular(match) for match in files]


def _regular(path: str) -> str:
    if os.path.isdir(path):
        names = _names(path)
        some = f"it holds {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else "it is empty"
        raise BadInputError(
            path, f"is a folder, not a file ({some})", f"Name its files: {os.path.join(path, '*.txt')!r}, or "
            f"{os.path.join(path, '**', '*.txt')!r} for folders below too", reason="folder",
        )  # fmt: skip
    if not os.path.exists(path):
        raise BadInputError(
            path, f"is a link to {os.readlink(path)!r}, which does not exist", "Mend or remove the link"
        )
    if not os.path.isfile(path):
        raise BadInputError(path, "is no regular file (files are read more than once)", "Save its content in a file")
    return path


def _why_nothing(path: str, folders: list[str]) -> tuple[str, str]:
    """What is wrong and what to do where a pattern matches no file."""
    if folders:
        return (
            f"matches only folders ({', '.join(sorted(folders)[:3])})",
            f"Add a file name: '{path.rstrip('/')}/*.txt'",
        )
    kind = "no file matches" if glob.has_magic(path) else "does not exist"
    folder = os.path.dirname(path.split("*")[0].split("?")[0]) or "."
    name = os.path.basename(path)
    if not os.path.isdir(folder):
        parent = folder
        while parent and not os.path.isdir(parent):
            folder, parent = parent, os.path.dirname(parent) or "."
        near = nearest(os.path.basename(folder), _names(parent), count=1, dotted=False)
        hint = f"; near is {os.path.join(parent, near[0])!r}" if near else ""
        return f"{kind}: the folder {folder!r} does not exist{hint}", "Check the path"
    names = _names(folder)
    if not names:
        return f"{kind}: the folder {folder!r} is empty", "Check the path"
    near = nearest(name, names, likeness=0.4, dotted=False) or names[:3]
    more = ", ..." if len(names) > len(near) else ""
    return f"{kind}; the folder {folder!r} holds {', '.join(near)}{more}", "Check the name or the pattern"


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
