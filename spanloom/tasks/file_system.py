"""Files and folders of this machine and of remote file systems (`s3://...`) under one set of names."""

import hashlib
import os
from typing import BinaryIO, cast

from spanloom.settings.row_sources import Errors
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.remote_files import RemoteFile, facts_of, is_remote, names_in

_EDGE = 1 << 12


def open_file(path: str, report: ReadReport | None = None) -> BinaryIO:
    """The file, open for reading bytes, with random access; `report` counts dropped connections.

    Raises BadInputError where it cannot be opened.
    """
    try:
        return cast(BinaryIO, RemoteFile(path, report or ReadReport())) if is_remote(path) else open(path, "rb")
    except OSError as error:
        raise BadInputError(
            path, f"cannot be opened: {error.strerror or error}", "Check the path and its permissions",
            reason="unreadable file",
        ) from error  # fmt: skip


def size_of(path: str) -> int:
    """Bytes of a file. Raises OSError, and BadInputError for one that is remote and cannot be asked for."""
    return facts_of(path, ReadReport()).size or 0 if is_remote(path) else os.path.getsize(path)


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name. Raises BadInputError where its server cannot be asked."""
    if not is_remote(path):
        return os.path.isdir(path)
    try:
        return facts_of(path, ReadReport()).is_folder
    except FileNotFoundError:
        return False


def exists(path: str) -> bool:
    """Whether there is a file or a folder of this name. Raises BadInputError where its server cannot be asked."""
    if not is_remote(path):
        return os.path.exists(path)
    try:
        facts_of(path, ReadReport())
    except FileNotFoundError:
        return False
    return True


def list_folder(path: str) -> list[str]:
    """The names in a folder, sorted. Raises OSError, and BadInputError where its server cannot be asked."""
    return names_in(path, ReadReport()) if is_remote(path) else sorted(os.listdir(path))


def real_path(path: str) -> str:
    """A file's name without links."""
    return path if is_remote(path) else os.path.realpath(path)


def identity(path: str, errors: Errors) -> bytes:
    """What tells a file from any other, hashed: its name without folders, its size, its time of change or what its
    server calls its version, and, where that is no version, its first and last bytes. Of one that cannot be opened it
    is the name alone where such files are skipped. Raises BadInputError.
    """
    try:
        return hashlib.sha256(_facts(path)).digest()
    except (OSError, BadInputError) as error:
        if errors == "skip":
            return os.path.basename(path).encode()
        if isinstance(error, BadInputError):
            raise
        raise BadInputError(path, f"cannot be read: {error.strerror or error}", "Check its permissions") from error


def _facts(path: str) -> bytes:
    name = os.path.basename(path)
    if is_remote(path):
        facts = facts_of(path, ReadReport())
        if facts.version:
            return f"{name!r} {facts.size} {facts.version} ".encode()
        with open_file(path) as file:
            return f"{name!r} {facts.size} {facts.changed} ".encode() + _edges(file, facts.size or 0)
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        return f"{name!r} {stat.st_size} {stat.st_mtime_ns} ".encode() + _edges(file, stat.st_size)


def _edges(file: BinaryIO, size: int) -> bytes:
    head = file.read(_EDGE)
    file.seek(max(0, size - _EDGE))
    return hashlib.sha256(head).digest() + hashlib.sha256(file.read(_EDGE)).digest()
