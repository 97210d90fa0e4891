"""TensorFlow's checkpoints (version 2, `NAME.index` and `NAME.data-*`), read without TensorFlow.

The index is a sorted table of LevelDB's format (https://github.com/google/leveldb/blob/main/doc/table_format.md):
blocks of names, each with a message that says type, shape and place of a tensor (tensor_bundle.proto of TensorFlow).
Blocks and tensors carry a CRC-32C, which is checked.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored, dtype_of, is_shape
from spanloom.tasks.crc32c import extended
from spanloom.vocabularies.wire import fields, read_varint

INDEX = ".index"
_FOOTER, _MAGIC = 48, 0xDB4775248B80FB57
_MOST_INDEX_BYTES = 1 << 28
_PIECE = 1 << 24  # bytes whose CRC is taken at once
_TYPES = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 14: "bfloat16", 19: "float16"}


@dataclass(frozen=True)
class _Place:
    dtype: str
    shape: tuple[int, ...]
    shard: int
    begin: int
    size: int
    crc: int


def is_index(path: Path) -> bool:
    """Whether a file is the index of such a checkpoint (perhaps a damaged one)."""
    return path.name.endswith(INDEX) and path.is_file()


def read_arrays(index: Path) -> dict[str, Stored]:
    """The tensors of a checkpoint by TensorFlow's name, each found to lie inside its file; none is read.

    Raises ConversionError, naming the file, where one is missing, cut short, damaged or no such checkpoint.
    """
    try:
        size = index.stat().st_size
        if size > _MOST_INDEX_BYTES:
            raise ValueError(f"{size:,} bytes of names")
        entries = dict(_entries(memoryview(index.read_bytes())))
        shards = _shards(entries.pop(""))
        places = {name: _place(name, entry) for name, entry in entries.items()}
    except (ValueError, LookupError, TypeError, OSError, struct.error) as error:
        raise ConversionError(
            index, f"is not a whole index of a TensorFlow checkpoint ({error}): copy it again"
        ) from error
    return {name: _stored(index, name, place, shards) for name, place in places.items()}


def _entries(table: memoryview) -> Iterator[tuple[str, memoryview]]:
    footer = table[-_FOOTER:]
    if len(footer) < _FOOTER or struct.unpack("<Q", footer[-8:])[0] != _MAGIC:
        raise ValueError("it does not end as one")
    at = read_varint(footer, read_varint(footer, 0)[1])[1]  # past the place of another table
    for _, handle in _block(table, _handle(footer, at)):
        for name, entry in _block(table, _handle(handle, 0)):
            yield name.decode("utf-8"), entry


def _block(table: memoryview, place: tuple[int, int]) -> Iterator[tuple[bytes, memoryview]]:
    begin, size = place
    if begin + size + 5 > len(table):
        raise ValueError(f"cut short: a block ends at byte {begin + size + 5}")
    kind, crc = struct.unpack("<BI", table[begin + size : begin + size + 5])
    if _masked(extended(0, np.frombuffer(table[begin : begin + size + 1], np.uint8))) != crc:
        raise ValueError(f"the block at byte {begin} is not what was written")
    if kind != 0:
        raise ValueError("its blocks are compressed, which TensorFlow's are not")
    block = table[begin : begin + size]
    (restarts,) = struct.unpack("<I", block[-4:])
    end = size - 4 * (restarts + 1)
    at, name = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        more, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(name) or at + more + length > end:
            raise ValueError("a name that is none")
        name = name[:shared] + bytes(block[at : at + more])
        yield name, block[at + more : at + more + length]
        at += more + length


def _handle(data: memoryview, at: int) -> tuple[int, int]:
    begin, at = read_varint(data, at)
    return begin, read_varint(data, at)[0]


def _shards(header: memoryview) -> int:
    said = dict(fields(header))
    shards = said.get(1, 0)
    if said.get(2, 0) != 0 or not isinstance(shards, int) or not 0 < shards < 100_000:
        raise ValueError("big-endian numbers, or no files of them")
    return shards


def _place(name: str, entry: memoryview) -> _Place:
    said: dict[int, Any] = dict(fields(entry))
    kind = dtype_of(_TYPES.get(said.get(1, 0)))
    shape = [
        dict(fields(size)).get(1, 0) for _, size in fields(said.get(2, memoryview(b""))) if not isinstance(size, int)
    ]
    shard, begin, size = (said.get(field, 0) for field in (3, 4, 5))
    if kind is None or 7 in said or not is_shape(shape) or not is_shape([shard, begin, size]):
        raise ValueError(f"{name} is no array of numbers in one piece")
    if math.prod(shape) * kind.itemsize != size:
        raise ValueError(f"{name} of shape {shape} in {size} bytes")
    return _Place(_TYPES[said[1]], tuple(shape), shard, begin, size, struct.unpack("<I", said[6])[0])


def _stored(index: Path, name: str, place: _Place, shards: int) -> Stored:
    file = index.with_name(f"{index.name.removesuffix(INDEX)}.data-{place.shard:05d}-of-{shards:05d}")
    if not file.is_file():
        raise ConversionError(file, f"is missing, and {index.name} has {name} in it: copy it, too")
    if place.begin + place.size > (size := file.stat().st_size):
        raise ConversionError(
            file, f"cut short: {name} ends at byte {place.begin + place.size}, of {size}: copy it again"
        )

    def read() -> np.ndarray:
        with file.open("rb") as data:
            data.seek(place.begin)
            content = np.frombuffer(data.read(place.size), np.uint8)
        crc = 0
        for begin in range(0, len(content), _PIECE):
            crc = extended(crc, content[begin : begin + _PIECE])
        if len(content) != place.size or _masked(crc) != place.crc:
            raise ConversionError(file, f"is damaged: {name} is not what was written: copy the checkpoint again")
        return content.view(np.dtype(dtype_of(place.dtype))).reshape(place.shape)

    return Stored(file, place.dtype, place.shape, read)


def _masked(crc: int) -> int:
    """As files keep a CRC, so that the CRC of a file with CRCs in it is a good one."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
