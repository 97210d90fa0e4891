"""PyTorch's checkpoints as PyTorch writes them, made here without it."""

import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

KINDS = {"float32": b"Float", "float64": b"Double", "float16": b"Half", "bfloat16": b"BFloat16", "int64": b"Long"}
ORDERED = b"ccollections\nOrderedDict\n)R"


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def view(
    key: str, array: np.ndarray, offset: int = 0, strides: tuple[int, ...] | None = None, count: int = -1
) -> bytes:
    """The instructions for one tensor that is a view of the storage `key`."""
    steps = tuple(stride // array.itemsize for stride in np.zeros(array.shape, array.dtype).strides)
    count = array.size if count < 0 else count
    storage = b"(" + text("storage") + b"ctorch\n" + KINDS[array.dtype.name] + b"Storage\n" + text(key) + text("cpu")
    storage += b"J" + struct.pack("<i", count) + b"tQ"
    rest = b"J" + struct.pack("<i", offset) + numbers(array.shape) + numbers(strides or steps) + b"\x89" + ORDERED
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"


def table(views: Mapping[str, bytes]) -> bytes:
    """The pickle of a state dict."""
    metadata = b"}" + text("_metadata") + ORDERED + b"sb"
    return b"\x80\x02" + ORDERED + b"(" + b"".join(text(n) + v for n, v in views.items()) + b"u" + metadata + b"."


def write_archive(
    path: Path, program: bytes, storages: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", b"little")
        archive.writestr("archive/version", b"3\n")
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return path


def write_torch(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """A state dict, each tensor with a storage of its own."""
    views = {name: view(str(number), array) for number, (name, array) in enumerate(arrays.items())}
    storages = {str(number): array.tobytes() for number, array in enumerate(arrays.values())}
    return write_archive(path, table(views), storages)


def write_old_torch(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """The same as PyTorch wrote it before 1.6."""
    views = {name: view(str(number), array) for number, (name, array) in enumerate(arrays.items())}
    magic = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
    system = b"\x80\x02}(" + text("protocol_version") + b"M\xe9\x03" + text("little_endian") + b"\x88u."
    keys = b"\x80\x02](" + b"".join(text(str(number)) for number in range(len(views))) + b"e."
    content = magic + b"\x80\x02M\xe9\x03." + system + table(views) + keys
    for array in arrays.values():
        content += struct.pack("<q", array.size) + array.tobytes()
    path.write_bytes(content)
    return path
