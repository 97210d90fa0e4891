"""Arrays as Orbax keeps them, written a layer at a time: Orbax itself wants a tree whole in memory.

A folder is an OCDBT database with one zarr array for each name, and _METADATA, which lists them; Orbax reads it as its
own (a test does), and `t5x_orbax` does without Orbax. Each layer has chunks of its own.
"""

import errno
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spanloom.conversion import zarr_write
from spanloom.conversion.t5x_orbax import LISTING
from spanloom.conversion.weights import Dtype, Weights, checked, written_type
from spanloom.conversion.zarr_write import ChunkWriter, chunk_shape

_COMPRESSOR = None  # weights shrink by few percent, and to pack and unpack them takes longer than all the rest
_SIZES = {"float32": 4, "bfloat16": 2}


def write_arrays(folder: Path, weights: Weights, dtype: Dtype, done: Callable[[int], None]) -> None:
    """Write weights (or an optimizer's arrays) under their names into the new folder `folder`.

    `done` is told how many numbers were written. Raises ConversionError, naming what holds NaN or infinity.
    """
    import tensorstore

    folder.mkdir(parents=True)
    listed = {}
    store = tensorstore.KvStore.open(
        {"driver": "ocdbt", "base": {"driver": "file", "path": f"{folder.absolute()}/"}}
    ).result()
    with ChunkWriter(lambda content: content.tobytes()) as writer:
        for name, weight in weights.items():
            key = name.replace("/", ".")
            put = functools.partial(_put, store, key)
            kind = written_type(weight.dtype, dtype)
            stacked = () if weight.layers is None else (1,)
            inner = chunk_shape(weight.shape[len(stacked) :], zarr_write.CHUNK_BYTES // _SIZES[kind])
            zarr_write.put_metadata(put, weight.shape, (*stacked, *inner), kind, _COMPRESSOR)
            for layer in weight.parts:
                array = checked(weight, layer, dtype)
                writer.write(array, inner, put, () if layer is None else (layer,))
                done(array.size)
            listed[name] = weight.shape
    (folder / LISTING).write_text(json.dumps(_listing(listed)), encoding="utf-8")


def _put(store: Any, key: str, file: str, content: bytes) -> None:
    """Raises what the file system says as OSError: TensorStore has it in the text of a ValueError."""
    try:
        store.write(f"{key}/{file}", content).result()
    except ValueError as error:
        codes = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        code = next((code for code in codes if os.strerror(code) in str(error)), errno.EIO)
        raise OSError(code, str(error).splitlines()[0][:300]) from error


def _listing(shapes: dict[str, tuple[int, ...]]) -> dict[str, object]:
    """The content of _METADATA."""
    entries = {}
    for name, shape in shapes.items():
        path = tuple(name.split("/"))
        entries[str(path)] = {
            "key_metadata": [{"key": key, "key_type": 2} for key in path],
            "value_metadata": {"value_type": "jax.Array", "skip_deserialize": False, "write_shape": list(shape)},
        }
    return {
        "tree_metadata": entries,
        "use_ocdbt": True,
        "use_zarr3": False,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }
