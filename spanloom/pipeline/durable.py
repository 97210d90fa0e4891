"""Files that are whole or absent: write, flush to disk, then rename; one lock for each directory
that is built; and lines that a kill may have torn."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from io import BufferedWriter
from pathlib import Path
from typing import Any

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class StorageError(RuntimeError):
    """The disk is full, or its file system cannot do what a safe build needs. The message says what to do."""


def sync_directory(path: Path) -> None:
    """Makes renames within a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, write: Callable[[BufferedWriter], object], *, shared: bool = False) -> None:
    """Writes a file under a temporary name, syncs it and renames it: under `path` it is whole or absent.

    A link stays one, and the file that it leads to is written. `shared`: other processes, of other machines too, may
    write it at the same time. A kill leaves the temporary file.
    Raises StorageError, and leaves no partial file, when the disk is full; FileExistsError where `path` is a device, a
    pipe or a socket, in whose place a rename would put a file.
    """
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise FileExistsError(errno.EEXIST, "Is a device, pipe or socket, not a file", str(path))
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part" if shared else f"{path.name}.part")
    try:
        with explain_full_disk(path), part.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


@contextlib.contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Turns a full disk or quota into a StorageError that says where, and how much room is left."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(path.parent).free
        raise StorageError(
            f"no room to write {path} ({error.strerror}; {free / 2**20:.0f} MiB free on that disk). "
            "Free some room, or name a place on another disk, and give the command again. "
            "Nothing half-written is left that could pass for a whole file."
        ) from error


@contextlib.contextmanager
def locked(path: Path, waiting: Callable[[], object], *, shared: bool = False) -> Iterator[int]:
    """Holds a lock on the file `path`, which is left behind; gives its open file.

    The lock is exclusive, or `shared` with others that ask for a shared one. The kernel drops it when the process dies,
    and every other that was given the open file.

    `waiting` is called once if another process holds the lock; it may raise instead of letting this one wait. Raises
    StorageError on a file system without locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:  # NFS gives shared locks to those who may read, exclusive ones to those who write
        try:
            _acquire(file.fileno(), waiting, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            raise StorageError(
                f"the file system of {path.parent} has no file locks ({error.strerror}), so two processes "
                "could not be kept apart there. Name a place on a local disk."
            ) from error
        yield file.fileno()


def _acquire(descriptor: int, waiting: Callable[[], object], kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(descriptor, kind)


def json_object(line: bytes) -> dict[str, Any] | None:
    """The object in a line of a file that is appended to; None for one that is damaged, such as torn by a kill."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
