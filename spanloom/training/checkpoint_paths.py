"""Which checkpoint is meant, and what to say of one that is damaged. Reads no arrays and no JAX."""

import json
import shutil
from pathlib import Path
from typing import Literal

from spanloom.pipeline.durable import explain_full_disk, sync_directory, write_file
from spanloom.settings.run_layout import CHECKPOINTS, DELETED, FACTS, PARTIAL, is_checkpoint, steps_in
from spanloom.training.integrity import MANIFEST, DamagedError, flush, read_manifest, verify
from spanloom.training.retention import best_steps

HELDOUT = "heldout.json"  # a held-out loss that was measured after the checkpoint was written


class CheckpointError(RuntimeError):
    """A checkpoint cannot be found, read or written; the message names it and says what to do."""


def latest(directory: Path) -> Path | None:
    """The last checkpoint of the run directory `directory`, or None if it has none yet."""
    steps = steps_in(directory / CHECKPOINTS)
    return directory / CHECKPOINTS / str(steps[-1]) if steps else None


def open_checkpoint(path: Path | str, which: Literal["last", "best"] | int | str = "last") -> Path:
    """The checkpoint directory meant by `path`: a checkpoint itself, a run directory, or its checkpoints/.

    `which` chooses among a run's: the last, the one with the lowest held-out loss, or the one of a step (a number).
    Raises CheckpointError, naming what there is, if there is no such checkpoint.
    """
    path = Path(path)
    if is_checkpoint(path):
        return path
    directory = path if path.name == CHECKPOINTS else path / CHECKPOINTS
    steps = steps_in(directory)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist: give a run directory or one of its checkpoints/STEP")
    if not steps:
        raise CheckpointError(f"{path} holds no Spanloom checkpoint (a run keeps them as {CHECKPOINTS}/STEP)")
    if which == "last":
        return directory / str(steps[-1])
    if which == "best":
        losses = {step: heldout_loss(directory / str(step)) for step in steps}
        if not (best := best_steps(losses)):
            raise CheckpointError(
                f"no checkpoint of {path} has a held-out loss, so none is the best: ask for 'last' or one of {steps}"
            )
        return directory / str(best[0])
    if not str(which).isdecimal() or int(which) not in steps:
        raise CheckpointError(f"{path} has no checkpoint {which}: ask for 'last', 'best' or one of {steps}")
    return directory / str(int(which))


def damaged(path: Path, reason: str) -> CheckpointError:
    """The error for a damaged checkpoint; offers the intact one before it, and falls back on nothing by itself."""
    step = int(path.name) if path.name.isdecimal() else -1
    for earlier in reversed([s for s in steps_in(path.parent) if s < step]):
        try:
            verify(path.parent / str(earlier))
        except DamagedError:
            continue
        offer = (
            f"The checkpoint before it, step {earlier}, is whole. To go on from that one, move the damaged one away "
            f"(mv {path} {path}.damaged) and give the same command again; to read it, name "
            f"{path.parent / str(earlier)}."
        )
        break
    else:
        offer = "There is no earlier checkpoint beside it; take it from a backup, or train anew, with another --out."
    return CheckpointError(f"checkpoint {path} is damaged: {reason}. {offer}")


def check_intact(path: Path) -> None:
    """Read every byte of the checkpoint; raises CheckpointError, naming the file, if one is not as it was written."""
    try:
        verify(path)
    except DamagedError as error:
        raise damaged(path, str(error)) from None


def copy_checkpoint(source: Path, directory: Path) -> Path:
    """Copy a checkpoint into the run directory `directory`, whose lock is held; it is there whole, and on disk, or not.

    A checkpoint never changes, so that the run it belongs to may go on meanwhile. Raises CheckpointError if it is
    damaged, or was deleted by that run; StorageError on a full disk.
    """
    place = directory / CHECKPOINTS / source.name
    partial = place.with_name(place.name + PARTIAL)
    place.parent.mkdir(parents=True, exist_ok=True)
    clean_up(place.parent)
    try:
        with explain_full_disk(place):
            partial.mkdir()
            # Only what belongs to it: its run may be writing a held-out loss beside it this very moment.
            later = [HELDOUT] if (source / HELDOUT).exists() else []
            for name in [*read_manifest(source / MANIFEST), MANIFEST, *later]:
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source / name, partial / name)
            flush(partial)
        verify(partial)
        partial.rename(place)
    except (FileNotFoundError, DamagedError) as error:
        if not source.exists():
            raise CheckpointError(
                f"{source} was deleted by its run while it was copied: give the same command again, for a later one"
            ) from None
        raise damaged(source, str(error).replace(str(partial), str(source))) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for folder in (place.parent, directory, directory.absolute().parent):
        sync_directory(folder)
    return place


def delete(path: Path) -> None:
    """Delete a checkpoint; it is renamed first, so that a kill in the middle leaves no half of it under its name."""
    condemned = path.with_name(path.name + DELETED)
    path.rename(condemned)
    shutil.rmtree(condemned)


def clean_up(directory: Path) -> None:
    """Remove what a killed save or deletion left behind. Only for the process that holds the run's lock."""
    for path in directory.iterdir() if directory.is_dir() else []:
        if path.name.endswith((PARTIAL, DELETED)):
            shutil.rmtree(path)


def heldout_loss(path: Path) -> float | None:
    """The held-out loss measured at the checkpoint's step, or None."""
    try:
        loss = json.loads((path / FACTS).read_text())["heldout_loss"]
        if loss is None and (path / HELDOUT).exists():
            loss = json.loads((path / HELDOUT).read_text())["heldout_loss"]
        return None if loss is None else float(loss)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None  # damaged: not the best of anything, and said when it is read


def add_heldout_loss(path: Path, loss: float) -> None:
    """Note a held-out loss measured at the step of the checkpoint `path`, whose evaluation had been interrupted."""
    write_file(path / HELDOUT, lambda file: file.write(json.dumps({"heldout_loss": loss}).encode()))
