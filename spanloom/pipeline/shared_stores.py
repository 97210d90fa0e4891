"""Stores that several run directories share: each has a link in the place of a store of its own."""

import os
from pathlib import Path

from spanloom.pipeline.data import store_directories
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run


def share_stores(run: Run, directory: Path, shared: Path) -> None:
    """Has the tasks of `run` (those that it only measures, too), which reads its stores in `directory`, use those in
    `shared`.

    Streams stay apart: each run drops what it no longer needs. So does a store that stands in `directory` already, and
    every one where the file system knows no links; it is made once more then.
    """
    for task in (*run.tasks, *run.eval.also):
        if is_stream(task.source):
            continue
        link, place = (next(iter(store_directories(task, base).values())).parent for base in (directory, shared))
        place.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and not link.exists():
            link.unlink()  # of a directory that was moved
        if link.exists():
            continue
        try:
            link.symlink_to(os.path.relpath(place, link.parent), target_is_directory=True)
        except OSError:
            return
