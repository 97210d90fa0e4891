"""Refuses to begin anew, which cuts the metrics, where a run has trained and its checkpoints are out of reach."""

from pathlib import Path

from spanloom.settings.run_layout import CHECKPOINTS
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.loggers import METRICS_FILE, read_events


def refuse_lost(directory: Path, every: int | None = None) -> None:
    """For a run directory in which no checkpoint is found; `every`: steps between those of the run that trained there.

    Raises CheckpointError if metrics.jsonl tells of trained steps, and of a checkpoint: the folder for them, made
    before the first step, is gone; a start went on from one; or the run got further than to the end of its first save.
    A run killed before that leaves trained steps, too, and begins anew.
    """
    events = list(read_events(directory / METRICS_FILE))
    steps = max((event["step"] for event in events if event["kind"] == "train"), default=0)
    resumed = any(event["kind"] == "start" and event["step"] for event in events)
    place = directory / CHECKPOINTS
    # The first save may be under way until the second begins.
    if steps and (not place.is_dir() or resumed or (every is not None and steps > 2 * every)):
        raise CheckpointError(
            f"{directory} has trained {steps:,} steps ({METRICS_FILE}), but there is no checkpoint of them: {place} "
            f"{_state(place)}. Bring it back; or begin anew, with another --out or, here, by deleting "
            f"{directory / METRICS_FILE}"
        )


def _state(place: Path) -> str:
    if place.is_dir():
        return "holds none"
    if place.is_symlink():
        return f"is a link to {place.readlink()}, which is not there"
    return "is no folder" if place.exists() else "is missing"
