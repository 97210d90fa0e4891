"""run.json: the run as data in its directory, written in one way by the command and by the loop."""

import json
from pathlib import Path

from spanloom.pipeline.durable import write_file
from spanloom.settings.run import Run
from spanloom.settings.run_layout import RUN_FILE
from spanloom.settings.serialize import to_json


def write_run(run: Run, directory: Path) -> None:
    """Writes the run into the run directory, whole or not at all. Raises StorageError if the disk is full."""
    text = json.dumps(to_json(run), indent=1) + "\n"
    write_file(directory / RUN_FILE, lambda file: file.write(text.encode()))


def restore_run(run: Run, directory: Path) -> None:
    """Writes the run again if its file is gone: a checkpoint without it is no run that could go on.

    The whole directory may have been removed while the run trained, and is made anew.
    """
    if not (directory / RUN_FILE).exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_run(run, directory)
