"""A T5X checkpoint on disk, whichever way it was written: found, and its arrays by name.

One of Mesh TensorFlow, T5X's predecessor, counts as another way of writing it.
"""

from dataclasses import dataclass
from pathlib import Path

from spanloom.conversion import mesh_tensorflow, t5x_msgpack, t5x_orbax, tensor_bundle
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored

INDEX = t5x_msgpack.INDEX
_PREFIX = "checkpoint_"
_OF_TENSORFLOW = b"model_checkpoint_path"


@dataclass(frozen=True)
class T5XCheckpoint:
    """One checkpoint of T5X."""

    path: Path
    """Its folder, or the one file that it is; of TensorFlow its index."""
    written_as: str
    """How it is written, in words."""
    weights: dict[str, Stored]
    """Weights by T5X's name ("encoder/layers_0/mlp/wo/kernel")."""
    slots: dict[str, Stored]
    """The optimizer's arrays by name and slot ("encoder/layers_0/mlp/wo/kernel/v_row")."""
    step: int
    """Updates done."""


def steps_in(folder: Path) -> dict[int, Path]:
    """The whole checkpoints that a run of T5X left in a folder, by step, ascending."""
    found = {}
    for path in folder.glob(f"{_PREFIX}*") if folder.is_dir() else []:
        step = path.name.removeprefix(_PREFIX)
        if step.isdecimal() and len(step) < 10 and is_checkpoint(path):  # checkpoint_7.tmp-123 is half-written
            found[int(step)] = path
    for path in folder.glob(f"*.ckpt-*{tensor_bundle.INDEX}") if folder.is_dir() else []:
        step = path.name.removesuffix(tensor_bundle.INDEX).rpartition("-")[2]
        if step.isdecimal() and len(step) < 10:
            found.setdefault(int(step), path)
    return dict(sorted(found.items()))


def is_checkpoint(path: Path) -> bool:
    """Whether a path is one checkpoint (perhaps a damaged one): a folder, or the one file of a small model."""
    if path.is_dir():
        return _is_msgpack(_index_of(path)) or _is_orbax(path)
    return tensor_bundle.is_index(path) or (_is_msgpack(path) and INDEX in path.name)


def find(path: Path, which: str = "last") -> Path:
    """The checkpoint that a path means: itself, or of a folder of them the last one or that of a step.

    Raises ConversionError, naming what there is.
    """
    if path.name == INDEX and path.is_file():
        path = path.parent
    if not path.exists():
        path = path.with_name(path.name + tensor_bundle.INDEX)  # TensorFlow's users name what its files begin with
    if is_checkpoint(path):
        if which != "last":
            raise ConversionError(path, f"is one checkpoint: there is no {which!r} to choose (--which)")
        return path
    steps = steps_in(path)
    if not steps:
        raise ConversionError(path, "holds no checkpoint of T5X")
    if which == "last":
        return steps[max(steps)]
    if not which.isdecimal() or int(which) not in steps:
        raise ConversionError(path, f"has no checkpoint {which!r}: ask for last or one of {', '.join(map(str, steps))}")
    return steps[int(which)]


def open_checkpoint(path: Path) -> T5XCheckpoint:
    """The checkpoint `path` with all of its arrays found and none read but the step.

    Raises ConversionError, naming the file, where one is missing, cut short or makes no sense.
    """
    if path.is_dir() and _is_orbax(path):
        arrays, written_as = t5x_orbax.read_arrays(path), "T5X, written by Orbax"
    elif tensor_bundle.is_index(path):
        arrays, written_as = mesh_tensorflow.read_arrays(path), "Mesh TensorFlow"
    else:
        place = _index_of(path).parent if path.is_dir() else path
        arrays = t5x_msgpack.read_arrays(place)
        written_as = "T5X, msgpack and zarr" if place == path else "T5X, written by an early Orbax"
    below = {"target/": {}, "state/param_states/": {}}  # type: dict[str, dict[str, Stored]]
    for name, array in arrays.items():
        for prefix, part in below.items():
            if name.startswith(prefix):
                part[name.removeprefix(prefix)] = array
    return T5XCheckpoint(path, written_as, below["target/"], below["state/param_states/"], _step(path, arrays))


def _step(path: Path, arrays: dict[str, Stored]) -> int:
    """The step it says; none of a checkpoint with weights alone, whose name then tells."""
    step = arrays.get("state/step")
    if step is None:
        named = path.name.removeprefix(_PREFIX)
        return int(named) if named.isdecimal() and len(named) < 10 else 0
    if step.shape not in ((), (1,)) or "int" not in step.dtype:
        raise ConversionError(step.file, f"state/step is {step.dtype} of shape {step.shape}, and not one number")
    number = int(step.read().reshape(()))
    if not 0 <= number < 2**31:
        raise ConversionError(step.file, f"state/step is {number}, which no training comes to")
    return number


def _index_of(path: Path) -> Path:
    """Where the index of a checkpoint's folder is; the first releases of Orbax have it in `state`."""
    inside = path / "state" / INDEX
    return inside if inside.is_file() and not (path / INDEX).exists() else path / INDEX


def _is_orbax(path: Path) -> bool:
    return t5x_orbax.item_folder(path) is not None


def _is_msgpack(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(len(_OF_TENSORFLOW))
    return start != _OF_TENSORFLOW and start[:1] >= b"\x80"  # a table, not the text that TensorFlow writes there
