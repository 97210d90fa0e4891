"""A checkpoint as a run directory knows it, without arrays: enough for what reads only what it says of itself."""

import json
from pathlib import Path

from spanloom.settings.run import Run
from spanloom.training.facts import Facts, to_data
from spanloom.training.integrity import seal


def save_bare(directory: Path, step: int, run: Run) -> Path:
    """Writes the checkpoint of `step` of the run in `directory`."""
    place = directory / "checkpoints" / str(step)
    place.mkdir(parents=True, exist_ok=True)
    facts = Facts(step=step, position={"examples": step * run.batch_size}, run=run, machine={})
    (place / "checkpoint.json").write_text(json.dumps(to_data(facts, {})))
    seal(place)
    return place
