"""`spanloom convert SRC DST --which all`: every checkpoint that is kept, as DST/STEP, by one command that goes on."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from spanloom import __version__
from spanloom.cli.errors import CommandError, UsageError
from spanloom.conversion import t5x_checkpoint
from spanloom.conversion.convert import Report
from spanloom.conversion.detect import KINDS, Kind
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.model_card import CARD_NAME
from spanloom.evaluation.results import key_of
from spanloom.pipeline.durable import write_file
from spanloom.settings.run_layout import CHECKPOINTS, steps_in
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.integrity import fingerprint

DONE = "converted.json"
"""Which checkpoint each folder beside it was made of, and how: what is there already is not made again."""


def convert_all(
    path: Path, kind: Kind, destination: Path, how: dict[str, object], one: Callable[[int, Path], Report]
) -> None:
    """Calls `one` with the step and the folder of every checkpoint, the earliest first, and prints what it reports.

    `how` is what decides the result beside the checkpoint, as JSON has it. Those that were made so before, and are
    whole, are passed over. A checkpoint that cannot be converted is named at the end, in a CommandError, and the others
    are converted. Raises UsageError for a path that is one checkpoint alone.
    """
    steps = _steps(path, kind)
    if not steps:
        raise UsageError(f"--which all: {path} is {KINDS[kind]}; all is of a run, or of a folder of T5X's checkpoints")
    failed = []
    for step, checkpoint in steps.items():
        place = destination / str(step)
        if not checkpoint.exists():
            print(f"{checkpoint} was deleted by its run meanwhile: passed over")
            continue
        try:
            key = key_of(checkpoint=_identity(checkpoint), version=__version__, **how)
            if _is_made(_done(destination).get(str(step)), key, place):
                print(f"{place} is there already")
                continue
            report = one(step, place)
            print(report.describe())
        except (CheckpointError, ConversionError) as error:
            failed.append(str(error))
            continue
        _note(destination, step, {"key": key, "mark": _mark_of(place), "files": report.files})
    if failed:
        raise CommandError("\n".join([f"{len(failed)} of {len(steps)} checkpoints were not converted:", *failed]))


def _steps(path: Path, kind: Kind) -> dict[int, Path]:
    """Every checkpoint of a run or a folder by its step, ascending; none of what is one checkpoint itself."""
    if kind == "run":
        folder = path if path.name == CHECKPOINTS else path / CHECKPOINTS
        return {step: folder / str(step) for step in steps_in(folder)}
    return t5x_checkpoint.steps_in(path) if kind == "t5x" and not t5x_checkpoint.is_checkpoint(path) else {}


def _identity(checkpoint: Path) -> str:
    """What tells a checkpoint from another that has its name: our list of sums, or sizes and times of files."""
    try:
        return fingerprint(checkpoint)
    except OSError:
        files = [checkpoint] if checkpoint.is_file() else sorted(checkpoint.rglob("*"))
        seen = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return key_of(files=seen)


def _is_made(made: object, key: str, place: Path) -> bool:
    """Whether a folder is what was made: with the same mark, which names the checkpoint, and the same sizes. The card
    is there to be edited."""
    if not isinstance(made, dict) or made.get("key") != key or made.get("mark") != _mark_of(place):
        return False
    files = made.get("files")
    if not isinstance(files, dict):
        return False
    sizes = {name: _size(place / name) for name in files}
    return None not in sizes.values() and {**sizes, CARD_NAME: 0} == {**files, CARD_NAME: 0}


def _size(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_size if path.is_file() else None
    return None


def _mark_of(place: Path) -> str | None:
    """SHA-256, in hexadecimal, of what an export says about itself; None where it says nothing."""
    try:
        return hashlib.sha256((place / MARK_NAME).read_bytes()).hexdigest()
    except OSError:
        return None


def _note(destination: Path, step: int, made: dict[str, object]) -> None:
    text = json.dumps(_done(destination) | {str(step): made}, indent=1)
    write_file(destination / DONE, lambda file: file.write(text.encode()))


def _done(destination: Path) -> dict[str, object]:
    """What is known of each folder that was made; nothing where the list is not there or damaged: all are made anew."""
    try:
        found = json.loads((destination / DONE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
