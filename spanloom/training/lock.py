"""One process at a time in a run directory: two would mix their checkpoints and metrics."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from spanloom.pipeline.durable import locked
from spanloom.scale.processes import Crew
from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.training.checkpoint_paths import clean_up


class DirectoryInUseError(RuntimeError):
    """Another process trains in the same run directory."""


@contextlib.contextmanager
def claimed(directory: Path, crew: Crew) -> Iterator[None]:
    """Hold the lock of a run directory in the first of its processes, and clean up what a kill left of checkpoints."""
    with contextlib.ExitStack() as stack:
        with crew.first_before_others("the directory"):
            if crew.is_first:
                stack.enter_context(directory_lock(directory))
                clean_up(directory / CHECKPOINTS)
        yield


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
