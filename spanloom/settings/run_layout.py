"""What a run directory looks like on disk: names, and which paths are runs and checkpoints. Reads no file's content."""

from pathlib import Path

RUN_FILE = "run.json"
STAGES_FILE = "stages.json"  # of a directory of runs that follow one another
CHECKPOINTS = "checkpoints"
STORES = "stores"
TENSORBOARD = "tensorboard"
TRACKED = "tracked_as"  # the run's name in W&B and trackio
FACTS = "checkpoint.json"
CONVERTED = "model.json"  # of a model that came from elsewhere, which no run made
ARRAYS = "arrays"
VOCABULARY = "vocabulary"
PARTIAL = ".partial"  # being written
DELETED = ".deleted"  # being deleted


def steps_in(directory: Path) -> list[int]:
    """Steps of the whole checkpoints below `directory` (a run's checkpoints/), ascending."""
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if _is_step(path.name) and path.is_dir())


def _is_step(name: str) -> bool:
    """Whether a checkpoint can be called `name`: 7 is one, 007 is somebody else's directory."""
    return name.isdecimal() and str(int(name)) == name


def is_checkpoint(path: Path) -> bool:
    """Whether `path` is a whole checkpoint directory (perhaps a damaged one)."""
    return (path / FACTS).is_file() and not path.name.endswith((PARTIAL, DELETED))


def is_converted(path: Path) -> bool:
    """Whether `path` is a whole directory of a converted model (perhaps a damaged one)."""
    return (path / CONVERTED).is_file() and (path / ARRAYS).is_dir()


def is_run_directory(path: Path) -> bool:
    """Whether `path` is a run directory, or its checkpoints/, with a checkpoint in it."""
    return bool(steps_in(path if path.name == CHECKPOINTS else path / CHECKPOINTS))
