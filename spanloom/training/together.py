"""Several processes that are to train one run: whether they were all started with it, and see its directory."""

import json
import uuid
from pathlib import Path

from spanloom.pipeline.durable import write_file
from spanloom.scale.processes import Crew
from spanloom.settings.compare import changes, within
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json, to_json

TOKEN = ".together"
"""File of a run directory by which processes know that it is the same one."""
OWN = ("out", "loading")
"""Fields that each process may have its own way: other hosts may know the directory by another name."""


class NotTogetherError(RuntimeError):
    """The processes were started with different settings or directories; the message says which."""


def write_token(directory: Path) -> None:
    """Leave a sign in the run directory that the other processes are to find there."""
    write_file(directory / TOKEN, lambda file: file.write(uuid.uuid4().hex.encode()))


def check_together(crew: Crew, run: Run, directory: Path) -> None:
    """Raise NotTogetherError in the first process, which ends all of them, unless every one has this run and sees the
    sign that the first one left in its directory (`write_token`, before).
    """
    token = (directory / TOKEN).read_text() if (directory / TOKEN).is_file() else ""
    said = crew.gather("the run", json.dumps({"run": to_json(run), "token": token, "directory": str(directory)}))
    for process, text in enumerate(said):
        theirs = json.loads(text)
        other = from_json(theirs["run"])
        assert isinstance(other, Run)
        if found := [change for change in changes(run, other) if not within(change.field, OWN)]:
            lines = "".join(f"\n  {change}" for change in found[:10])
            raise NotTogetherError(
                f"process {process} was started with other settings than process 0 (theirs to the right):{lines}\n"
                "All processes take the same command, but for --process."
            )
        if theirs["token"] != token:
            raise NotTogetherError(
                f"process {process} does not see the run directory of process 0: {theirs['directory']} there is not "
                f"{directory} here. All processes need one directory that they share, such as one of a network file "
                "system, in --out"
            )
