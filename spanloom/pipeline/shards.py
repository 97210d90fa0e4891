"""One shard of a store: an Arrow IPC stream file with one record batch, a `LargeList` column of token ids each.

One batch a file keeps the value buffer of a column one flat, memory-mapped stream of tokens, whose offsets are the
lengths; `pyarrow` and `datasets.Dataset.from_file` read the same file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

import numpy as np
import pyarrow as pa

from spanloom.pipeline.durable import write_file


class DamagedStoreError(ValueError):
    """A file of a store is truncated, altered or not what its description says."""


@dataclass(frozen=True)
class Ragged:
    """Rows of different lengths in one flat array."""

    values: np.ndarray
    """All rows one after another, (tokens,) uint16 or uint32."""
    offsets: np.ndarray
    """Row r is values[offsets[r]:offsets[r + 1]]; (rows + 1,) int64 from 0."""


def token_dtype(vocabulary_size: int) -> np.dtype:
    """uint16 where every id fits, uint32 elsewhere."""
    return np.dtype(np.uint16 if vocabulary_size <= 2**16 else np.uint32)


def ragged(values: np.ndarray, lengths: Sequence[int] | np.ndarray) -> Ragged:
    """Rows of these lengths, one after another in `values`."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return Ragged(values, offsets)


class RaggedBuilder:
    """Rows that come in pieces, joined as they come: memory for two copies of a shard costs a third of the time."""

    def __init__(self, dtype: np.dtype, expected: int):
        """`expected`: about how many tokens; memory that they do not fill is never touched."""
        self._values = np.empty(expected, dtype)
        self._tokens = 0
        self._offsets = [np.zeros(1, np.int64)]

    def add(self, piece: Ragged) -> None:
        """Appends the rows of a piece."""
        end = self._tokens + len(piece.values)
        if end > len(self._values):
            self._values = np.concatenate([self._values[: self._tokens], np.empty_like(self._values, shape=end)])
        self._values[self._tokens : end] = piece.values
        self._offsets.append(piece.offsets[1:] + self._tokens)
        self._tokens = end

    def finish(self) -> Ragged:
        """All rows."""
        return Ragged(self._values[: self._tokens], np.concatenate(self._offsets))


def write_shard(path: Path, columns: Mapping[str, Ragged], *, shared: bool = False) -> None:
    """Writes a shard, whole or not at all; `shared`: so may others (`spanloom.pipeline.durable.write_file`)."""
    arrays = {name: _to_arrow(column) for name, column in columns.items()}
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def write(file: BufferedWriter) -> None:
        with pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batch.schema) as writer:
            writer.write_batch(batch)

    write_file(path, write, shared=shared)


def _to_arrow(column: Ragged) -> pa.Array:
    """The same memory as Arrow has it. (`pa.array` would load pandas first, if that is installed: 24 MiB.)"""
    kind = pa.from_numpy_dtype(column.values.dtype)
    values = pa.Array.from_buffers(kind, len(column.values), [None, _buffer(column.values)])
    offsets = _buffer(column.offsets.astype(np.int64, copy=False))
    return pa.Array.from_buffers(pa.large_list(kind), len(column.offsets) - 1, [None, offsets], children=[values])


def _buffer(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values).data)


def read_shard(path: Path) -> dict[str, Ragged]:
    """Maps a shard into memory; no token is read before it is used.

    Raises DamagedStoreError if the file is no such shard.
    """
    try:
        with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
            batch = stream.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise DamagedStoreError(f"{path} cannot be read as a shard of a store: {error}") from error
    return {name: _from_arrow(path, batch.column(name)) for name in batch.schema.names}


def _from_arrow(path: Path, array: pa.Array) -> Ragged:
    if not isinstance(array, pa.LargeListArray) or array.null_count:
        raise DamagedStoreError(f"{path} holds {array.type} where lists of token ids must be")
    return Ragged(
        array.values.to_numpy(zero_copy_only=True),
        array.offsets.to_numpy(zero_copy_only=True),
    )
