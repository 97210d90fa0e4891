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
