"""What a run directory looks like on disk: names, and which paths are runs and checkpoints. Reads no file's content."""

from pathlib import Path

RUN_FILE = "run.json"
STAGES_FILE = "stages.json"  # of a directory of runs that follow one another
CHECKPOINTS = "checkpoints"
STORES = "stores"
TENSORBOARD = "tensorboard"
TRACKED = "tracked_as"  # the run's name in W&B and trackio
COPIED = "copied.json"  # which run a copy in a bucket is of
SEGMENTS = "metrics"  # of such a copy: the parts of its metrics.jsonl
FACTS = "checkpoint.json"
CONVERTED = "model.json"  # of a model that came from elsewhere, which no run made
ARRAYS = "arrays"
VOCABULARY = "vocabulary"
PARTIAL = ".partial"  # being written
DELETED = ".deleted"  # being deleted


def segment_name(start: int) -> str:
    """The name of the segment of a metrics.jsonl that begins at a byte: names sort as segments do."""
    return f"{start:016}.jsonl"


def segment_start(name: str) -> int | None:
    """The byte at which a segment begins; None for what is called otherwise."""
    digits, dot, ending = name.partition(".")
    whole = len(digits) == 16 and digits.isascii() and digits.isdecimal() and dot + ending == ".jsonl"
    return int(digits) if whole else None


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
