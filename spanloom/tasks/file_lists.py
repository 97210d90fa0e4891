"""Paths and globs to a list of files, always in the same order, and what a file holds by its name."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from spanloom.settings.nearest import nearest
from spanloom.tasks.compression import SUFFIXES
from spanloom.tasks.file_system import real_path
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.remote_files import (
    facts_of,
    files_like,
    forget,
    is_remote,
    names_near,
    normalized,
    refuse_secrets,
)

FORMATS = {
    ".txt": "txt", ".text": "txt",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl",
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv",
    ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
"""File name endings of the formats that are read; a compression's ending may follow."""


def list_files(patterns: Sequence[str], intake: Intake | None = None) -> list[str]:
    """The files that paths and globs (`~`, `*`, `?`, `[...]`, `**`) name: sorted by path, each file once.

    They may be remote (s3://bucket/corpus/*.txt), see `spanloom.tasks.remote_files`.

    Raises BadInputError for a pattern without a file, naming what is near, for a folder, and for what is no regular
    file; unless bad input is skipped and there are other files.
    """
    intake = intake or Intake(ReadReport())
    patterns = (patterns,) if isinstance(patterns, str) else patterns
    if not patterns:
        raise BadInputError("files", "no files are named", "Name paths or globs, such as --text 'corpus/*.txt'")
    for pattern in patterns:
        _check_pattern(pattern)
    paths: set[str] = set()
    last: BadInputError | None = None
    for pattern in patterns:
        for match in _remote_matches(pattern, intake.report) if is_remote(pattern) else _matches(pattern):
            if isinstance(match, BadInputError):
                last = match
                intake.refuse(match)
            else:
                paths.add(match)
    if not paths and last is not None:
        raise last
    files: dict[str, str] = {}
    for path in sorted(paths):
        first = files.setdefault(real_path(path), path)
        if first != path:
            intake.report.note("same file", f"{path} is {first} under another name: read once")
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


def _check_pattern(pattern: str) -> None:
    """Raises BadInputError for what no setting can skip: it names no file, or must not be written down."""
    if not pattern.strip():
        raise BadInputError("files", "one name is empty", "Name paths or globs (is a variable of the shell unset?)")
    if is_remote(pattern):
        refuse_secrets(pattern)


def _matches(pattern: str) -> list[str | BadInputError]:
    """The files of a pattern, with an error in the place of each that cannot be read."""
    path = os.path.expanduser(pattern)
    if os.path.lexists(path):
        return [_irregular(path) or path]
    found = sorted(glob.glob(path, recursive=True))
    files = [match for match in found if not os.path.isdir(match)]
    if not files:
        return [BadInputError(pattern, *_why_nothing(path, found), reason="nothing found")]
    return [_irregular(match) or match for match in files]


def _remote_matches(pattern: str, report: ReadReport) -> list[str | BadInputError]:
    """Like `_matches`, on a remote file system. Raises BadInputError where it cannot be asked."""
    forget(pattern)
    try:
        facts = facts_of(pattern, report)
    except FileNotFoundError:
        # a question mark begins the query of a web address
        is_glob = "*" in pattern if pattern.startswith("http") else glob.has_magic(pattern)
        found = files_like(pattern, report) if is_glob else []
        if found:
            return [*found]
        kind = "no file matches" if is_glob else "does not exist"
        return [BadInputError(pattern, kind + names_near(pattern), "Check the address", reason="nothing found")]
    if facts.is_folder:
        fix = f"Name its files: {pattern.rstrip('/') + '/*.txt'!r}"
        return [BadInputError(pattern, "is a folder, not a file", fix, reason="folder")]
    return [normalized(pattern)]


def _irregular(path: str) -> BadInputError | None:
    """Why a path is no file to read, or None."""
    if os.path.isdir(path):
        names = _names(path)
        like = _like(names)
        some = f"it holds {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}" if names else "it is empty"
        return BadInputError(
            path, f"is a folder, not a file ({some})", f"Name its files: {os.path.join(path, like)!r}, or "
            f"{os.path.join(path, '**', like)!r} for folders below too", reason="folder",
        )  # fmt: skip
    if not os.path.exists(path):
        return BadInputError(
            path, f"is a link to {os.readlink(path)!r}, which does not exist", "Mend or remove the link",
            reason="broken link",
        )  # fmt: skip
    if not os.path.isfile(path):
        what = "is no regular file (files are read more than once)"
        return BadInputError(path, what, "Save its content in a file", reason="no regular file")
    return None


def _like(names: list[str]) -> str:
    """A pattern for the files of a folder: with the ending of the first that has one, and what is before that of a
    compression.
    """
    endings = (Path(name).suffixes for name in names)
    found = next(filter(None, endings), [".txt"])
    return "*" + "".join(found[-2 if found[-1] in SUFFIXES else -1 :])


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
