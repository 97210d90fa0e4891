"""The models that `spanloom eval` is given: which there are, and what tells each from others, before any is read."""

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jax

from spanloom.cli.errors import UsageError
from spanloom.conversion.detect import detect
from spanloom.evaluation.loaded import LoadedModel
from spanloom.scale.mesh import MeshError, mesh_sizes
from spanloom.settings.mesh import Mesh
from spanloom.settings.run_layout import CHECKPOINTS, steps_in
from spanloom.training.checkpoint_paths import open_checkpoint
from spanloom.training.integrity import fingerprint
from spanloom.training.read_model import read_model


@dataclass(frozen=True)
class Subject:
    """A model that is evaluated."""

    name: str
    """Of its folder of predictions, and in tables."""
    path: Path
    """A checkpoint, or a Hugging Face folder."""
    fingerprint: str
    """What tells it from others."""


def subjects_of(path: Path, checkpoints: Iterable[str]) -> list[Subject]:
    """The models that a path and --checkpoints name. Raises CheckpointError, ConversionError."""
    kind = detect(path)
    if kind != "run":
        if tuple(checkpoints) != ("last",):
            raise UsageError(f"--checkpoints chooses among those of a run directory, and {path} is none")
        return [_of_run(path) if kind == "checkpoint" else _of_folder(path)]
    directory = path if path.name == CHECKPOINTS else path / CHECKPOINTS
    names = [str(step) for step in steps_in(directory)] if "all" in checkpoints else list(checkpoints)
    return [_of_run(one) for one in dict.fromkeys(open_checkpoint(path, name) for name in names)]


def load(subject: Subject, mesh: Mesh) -> LoadedModel:
    """The model, divided among all devices of this process as `mesh` says."""
    return LoadedModel(read_model(subject.path), mesh)


def mesh_here(mesh: Mesh) -> Mesh:
    """A run's mesh where it fits the devices here, else every device has the whole model and a share of the rows."""
    try:
        mesh_sizes(mesh, jax.device_count())
    except MeshError as error:
        print(f"{error}. Here every device has the whole model and a share of the rows", file=sys.stderr)
        return Mesh()
    return mesh


def _of_run(path: Path) -> Subject:
    path = path.resolve()
    return Subject(f"{path.parent.parent.name}-{path.name}", path, fingerprint(path))


def _of_folder(path: Path) -> Subject:
    """A folder is what its files are, and those of its folders, as T5X's are; the model card left out."""
    path, digest = path.resolve(), hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file() and one.suffix != ".md"):
        with file.open("rb") as content:
            digest.update(
                f"{file.relative_to(path).as_posix()} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode()
            )
    return Subject(f"{path.parent.name}-{path.name}", path, digest.hexdigest())
