"""TensorFlow's checkpoints as TensorFlow writes them, made here without it."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tensorboardX.crc32c import crc32c

from spanloom.vocabularies.wire import BYTES, FIXED32, VARINT, key, varint

TYPES = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "bfloat16": 14, "float16": 19}


def masked(content: bytes) -> bytes:
    crc = crc32c(content)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def number(field: int, value: int) -> bytes:
    return key(field, VARINT) + varint(value) if value else b""


def message(field: int, content: bytes) -> bytes:
    return key(field, BYTES) + varint(len(content)) + content


def entry(array: np.ndarray, shard: int, begin: int) -> bytes:
    shape = b"".join(message(2, number(1, size)) for size in array.shape)
    content = array.tobytes()
    places = number(3, shard) + number(4, begin) + number(5, len(content))
    kind = TYPES[array.dtype.name]
    return number(1, kind) + message(2, shape) + places + key(6, FIXED32) + masked(content)


def block(entries: Mapping[str, bytes]) -> bytes:
    """Names share what they begin with, as in LevelDB."""
    content, before = b"", ""
    for name, value in entries.items():
        shared = next(
            (at for at, (a, b) in enumerate(zip(before, name, strict=False)) if a != b), min(len(before), len(name))
        )
        rest = name[shared:].encode()
        content += varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value
        before = name
    return content + struct.pack("<II", 0, 1)


def table(entries: Mapping[str, bytes], blocks: int = 2) -> bytes:
    names = sorted(entries)
    content, handles = b"", {}
    size = -(-len(names) // blocks)
    for start in range(0, len(names), size):
        part = {name: entries[name] for name in names[start : start + size]}
        one = block(part) + b"\0"
        handles[names[min(start + size, len(names)) - 1]] = varint(len(content)) + varint(len(one) - 1)
        content += one + masked(one)
    places = []
    for one in (block({}) + b"\0", block(handles) + b"\0"):
        places.append(varint(len(content)) + varint(len(one) - 1))
        content += one + masked(one)
    return content + b"".join(places).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)


def write_bundle(prefix: Path, arrays: Mapping[str, np.ndarray], shards: int = 1) -> Path:
    """A checkpoint PREFIX.index and PREFIX.data-*; the path of its index."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    files = [b""] * shards
    entries = {"": number(1, shards) + message(3, number(1, 1))}
    for count, (name, array) in enumerate(sorted(arrays.items())):
        shard = count % shards
        entries[name] = entry(array, shard, len(files[shard]))
        files[shard] += array.tobytes()
    for shard, content in enumerate(files):
        Path(f"{prefix}.data-{shard:05d}-of-{shards:05d}").write_bytes(content)
    index = Path(f"{prefix}.index")
    index.write_bytes(table(entries))
    return index
