"""One process at a time in a run directory: two would mix their checkpoints and metrics."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class DirectoryInUseError(RuntimeError):
    """Another process trains in the same run directory."""


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold `directory`/.lock while inside; the kernel lets go of it however the process ends.

    Raises DirectoryInUseError, naming the other process, if it is held. File systems without locks go unguarded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / ".lock"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 100, 0).decode(errors="replace").strip() or "unknown"
            raise DirectoryInUseError(
                f"{directory} is in use by another training process (id {holder}). Wait for it or stop it, "
                "or train into another directory with --out."
            ) from None
        except OSError:
            pass  # no flock here (some network file systems)
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
