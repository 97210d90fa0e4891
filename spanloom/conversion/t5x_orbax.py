"""T5X's checkpoints as Orbax writes them: zarr arrays, most often inside an OCDBT database, listed in _METADATA."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spanloom.conversion import zarr_arrays
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored
from spanloom.conversion.whole_file import MOST, read_whole
from spanloom.conversion.zarr_arrays import Chunks

LISTING = "_METADATA"
_DATABASE = "manifest.ocdbt"
_NO_ARRAYS = ("string", "None")


def item_folder(path: Path) -> Path | None:
    """Where in a checkpoint Orbax keeps the state of a T5X run: in `state`, or in the checkpoint itself."""
    return next((place for place in (path / "state", path) if (place / LISTING).is_file()), None)


def read_arrays(path: Path) -> dict[str, Stored]:
    """The arrays of the checkpoint `path` by T5X's name, "target/..." and "state/...".

    All that its listing names are there with all of their chunks. Raises ConversionError, naming the file.
    """
    folder = item_folder(path)
    if folder is None:
        raise ConversionError(path, f"has no {LISTING}: it is no checkpoint of Orbax, or was not wholly written")
    names = _listed(folder / LISTING)
    keys = frozenset(".".join(name) for name in names)
    found = database(folder, keys) if has_database(folder) else _folders(folder, keys)
    last = zarr_arrays.LastChunk()
    return {"/".join(name): zarr_arrays.open_array(found[".".join(name)], last=last) for name in names}


def _listed(path: Path) -> list[tuple[str, ...]]:
    """Names of all arrays. What Orbax left out (empty tables, say) has no place, and text is none."""
    try:
        whole = json.loads(read_whole(path).decode("utf-8"))
        entries: dict[str, Any] = whole["tree_metadata"]
        names = [
            tuple(str(part["key"]) for part in entry["key_metadata"])
            for entry in entries.values()
            if not entry["value_metadata"].get("skip_deserialize")
            and entry["value_metadata"].get("value_type") not in _NO_ARRAYS
        ]
    except ConversionError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ConversionError(path, f"lists no arrays ({error}): copy the checkpoint again") from error
    if whole.get("use_zarr3"):
        raise ConversionError(path, "is of zarr version 3, which T5X does not write; version 2 is read")
    for name in names:
        if any("/" in part or part in ("", ".", "..") for part in name):
            raise ConversionError(path, f"names an array {name}, which no parameter is called")
    return names


def _folders(folder: Path, keys: frozenset[str]) -> dict[str, Chunks]:
    return {key: zarr_arrays.folder_chunks(folder / key) for key in keys}


def has_database(folder: Path) -> bool:
    """Whether the arrays of a folder are in an OCDBT database."""
    return (folder / _DATABASE).is_file()


def database(folder: Path, keys: frozenset[str]) -> dict[str, Chunks]:
    """The chunks of the arrays of these names in a folder's database. ConversionError where it is damaged."""
    import tensorstore

    file = folder / _DATABASE
    if (size := file.stat().st_size) > MOST:  # TensorStore ends the process where memory does not hold it
        raise ConversionError(file, f"has {size:,} bytes, and such files {MOST:,} at most: copy the checkpoint again")
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder.absolute()}/"}}
    try:
        store = tensorstore.KvStore.open(spec).result()
        inside = [key.decode("utf-8") for key in store.list().result()]
    except ValueError as error:  # TensorStore's own errors are that, too
        raise ConversionError(file, f"cannot be read ({_first_line(error)}): copy the checkpoint again") from error

    def chunks_of(key: str, names: frozenset[str]) -> Chunks:
        def get(name: str) -> bytes:
            try:
                return bytes(store.read(f"{key}/{name}").result().value)
            except ValueError as error:
                raise ConversionError(
                    file, f"{key}/{name} cannot be read ({_first_line(error)}): copy the checkpoint again"
                ) from error

        return Chunks(names, get, lambda name: file / key / name)

    return {key: chunks_of(key, names) for key, names in _grouped(inside, keys)}


def _grouped(inside: list[str], keys: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    names: dict[str, set[str]] = {key: set() for key in keys}
    for entry in inside:
        key, _, name = entry.partition("/")
        if key in names:
            names[key].add(name)
    for key, own in names.items():
        yield key, frozenset(own)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
