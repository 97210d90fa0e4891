"""One process at a time in a run directory: two would mix their checkpoints and metrics."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from spanloom.pipeline.durable import locked


class DirectoryInUseError(RuntimeError):
    """Another process trains in the same run directory."""


@contextlib.contextmanager
def directory_lock(directory: Path) -> Iterator[None]:
    """Hold `directory`/.lock while inside; the kernel lets go of it however the process ends.

    Raises DirectoryInUseError, naming the other process, if it is held, and StorageError on a file system without
    locks.
    """
    path = directory / ".lock"

    def in_use() -> NoReturn:
        holder = path.read_text(encoding="utf-8", errors="replace").strip() or "unknown"
        raise DirectoryInUseError(
            f"{directory} is in use by another training process (id {holder}). Wait for it or stop it, "
            "or train into another directory with --out."
        )

    with locked(path, in_use) as file:
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield
