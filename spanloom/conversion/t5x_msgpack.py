"""T5X's own checkpoints (versions 2 and 3): one msgpack index, and arrays in it or in zarr folders beside it.

Names are T5X's with slashes, "target/..." and "state/...". A leaf of the index is an array, or says as a TensorStore
spec in which folder it is; only the last part of that path counts, so that a checkpoint may lie anywhere and nothing
outside it is ever read. The first releases of Orbax (of 2023) wrote for T5X such an index, too, whose leaves are
placeholders that name the folder.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import ml_dtypes
import numpy as np

from spanloom.conversion import msgpack_file, t5x_orbax, zarr_arrays
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored

INDEX = "checkpoint"
VERSIONS = (2, 3)
_PLACEHOLDER = "PLACEHOLDER://"


def read_arrays(path: Path) -> dict[str, Stored]:
    """The arrays of a checkpoint by name: a folder `checkpoint_STEP`, or one msgpack file that holds all of them.

    Every array is found and has all of its chunks, whose content is not read. Raises ConversionError, naming the file.
    """
    index = path / INDEX if path.is_dir() else path
    tree = msgpack_file.read_tree(index)
    version, optimizer = tree.get("version"), tree.get("optimizer")
    if version is None and isinstance(tree.get("target"), dict):
        return dict(_arrays(tree, (), index.parent, index))
    if not isinstance(optimizer, dict) or not isinstance(optimizer.get("target"), dict):
        raise ConversionError(index, "is a msgpack file, but holds no optimizer/target as T5X's checkpoints do")
    if version not in VERSIONS:
        raise ConversionError(
            index, f"is in version {version} of T5X's format; 2 and 3 (written since 2021) are read: save it with T5X"
        )
    arrays = dict(_arrays(optimizer, (), path if path.is_dir() else path.parent, index))
    return {name: _bfloat16(name, array) for name, array in arrays.items()} if version == 2 else arrays


def _arrays(tree: Mapping[str, Any], above: tuple[str, ...], folder: Path, index: Path) -> Iterator[tuple[str, Stored]]:
    for key, leaf in tree.items():
        name = "/".join((*above, key))
        if isinstance(leaf, Stored):
            yield name, leaf
        elif isinstance(leaf, dict) and isinstance(leaf.get("driver"), str):
            yield name, _in_folder(name, leaf, folder, index)
        elif isinstance(leaf, dict):
            yield from _arrays(leaf, (*above, key), folder, index)
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool):
            number = np.asarray(leaf, np.int64 if isinstance(leaf, int) else np.float64)
            yield name, Stored(index, str(number.dtype), (), lambda number=number: number)  # type: ignore[misc]
        elif isinstance(leaf, str) and leaf.startswith(_PLACEHOLDER):
            yield name, zarr_arrays.open_array(_named(name, leaf.removeprefix(_PLACEHOLDER), folder, index))
        elif leaf is not None and not (isinstance(leaf, list) and not leaf):
            raise ConversionError(index, f"has no array for {name}, but a {type(leaf).__name__}")


def _named(name: str, place: str, folder: Path, index: Path) -> zarr_arrays.Chunks:
    if PurePosixPath(place).name != place or place in ("", ".", "..") or "\0" in place:
        raise ConversionError(index, f"keeps {name} at {place[:80]!r}, which is no folder beside it")
    if t5x_orbax.has_database(folder):
        return t5x_orbax.database(folder, frozenset({place}))[place]
    return zarr_arrays.folder_chunks(folder / place)


def _in_folder(name: str, spec: Mapping[str, Any], folder: Path, index: Path) -> Stored:
    store = spec.get("kvstore")
    written = store.get("path") if isinstance(store, dict) else spec.get("path")  # at the top before TensorStore 0.1.14
    place = PurePosixPath(written.replace("\\", "/")).name if isinstance(written, str) else ""
    if spec["driver"] != "zarr" or place in ("", ".", ".."):
        raise ConversionError(
            index, f"keeps {name} with driver {spec['driver'][:20]!r} at {str(written)[:80]!r}, which is no zarr folder"
        )
    metadata = spec.get("metadata")
    described = {"dtype": spec.get("dtype"), **metadata} if isinstance(metadata, dict) else None
    return zarr_arrays.open_array(zarr_arrays.folder_chunks(folder / place), described)


def _bfloat16(name: str, array: Stored) -> Stored:
    """Version 2 kept bfloat16 weights as numbers of 16 bits."""
    if array.dtype != "uint16" or not name.startswith("target/"):
        return array
    return replace(array, dtype="bfloat16", read=lambda: array.read().view(ml_dtypes.bfloat16), look=None)
