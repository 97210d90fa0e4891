"""T5X checkpoints as T5X writes them, made here: a msgpack index with arrays in it or in zarr folders beside it."""

import gzip
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import msgpack
import numpy as np

from spanloom.conversion.t5x_places import Layout, places
from spanloom.settings.model import Model

ZARR_NAMES = {"float32": "<f4", "int32": "<i4", "bfloat16": "bfloat16", "float64": "<f8", "uint16": "<u2"}


def extension(array: np.ndarray) -> msgpack.ExtType:
    content = np.ascontiguousarray(array).tobytes()
    return msgpack.ExtType(1, msgpack.packb([list(array.shape), array.dtype.name, content]))


def write_zarr(folder: Path, array: np.ndarray, chunks: tuple[int, ...]) -> dict[str, Any]:
    folder.mkdir(parents=True)
    meta = {"chunks": list(chunks), "compressor": {"id": "gzip", "level": 1}, "shape": list(array.shape)}
    whole = meta | {"dtype": ZARR_NAMES[array.dtype.name], "zarr_format": 2, "order": "C", "fill_value": None}
    (folder / ".zarray").write_text(json.dumps(whole | {"filters": None, "dimension_separator": "."}))
    counts = [-(-size // chunk) for size, chunk in zip(array.shape, chunks, strict=True)]
    for place in np.ndindex(*counts):
        chunk = np.zeros(chunks, array.dtype)
        part = array[tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, chunks, strict=True))]
        chunk[tuple(slice(size) for size in part.shape)] = part
        (folder / (".".join(map(str, place)) or "0")).write_bytes(gzip.compress(chunk.tobytes(), 1, mtime=0))
    return meta


def write_t5x(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    *,
    inline: Callable[[str], bool] = lambda name: False,
    version: int = 3,
    old_specs: bool = False,
    above: str = "",
) -> Path:
    """A checkpoint of arrays by name ("target/...", "state/..."); arrays that are not inline have folders."""
    path.mkdir(parents=True, exist_ok=True)
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = name.split("/")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        if inline(name):
            place[last] = extension(array)
            continue
        folder = name.replace("/", ".")
        chunks = tuple(max(1, math.ceil(size / 2)) for size in array.shape)
        meta = write_zarr(path / folder, array, chunks)
        written = f"{above}{folder}/"
        where = {"path": written} if old_specs else {"kvstore": {"driver": "file", "path": written}}
        place[last] = {"driver": "zarr", "dtype": array.dtype.name, "metadata": meta, **where}
    (path / "checkpoint").write_bytes(msgpack.packb({"version": version, "optimizer": tree}))
    return path


def random_weights(model: Model, layout: Layout | None = None, *, bfloat16: bool = False) -> dict[str, np.ndarray]:
    """Random "target/..." of a model in one of T5X's layouts."""
    random = np.random.default_rng(0)
    kind = np.dtype(ml_dtypes.bfloat16) if bfloat16 else np.dtype(np.float32)
    return {
        f"target/{place.name}": random.normal(0, 0.5, place.shape).astype(kind)
        for place in places(model, layout or Layout())
    }
