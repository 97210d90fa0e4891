"""PyTorch's checkpoints (pytorch_model.bin), without PyTorch and without running their pickles.

Since 1.6 a file is a zip archive: NAME/data.pkl, and NAME/data/KEY with the bytes of each storage, uncompressed.
Before, it was several pickles one after another, then each storage with its length before it.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from spanloom.conversion import pickled
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.pickled import NotTensorsError, Storage, View
from spanloom.conversion.safetensors_file import Entry, itemsize

_TYPES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
_MOST_PICKLE_BYTES = 1 << 26
_OLD_MAGIC = 0x1950A86A20F9469CFC6C
_LOCAL_HEADER = 30
_AGAIN = "copy or download it again"

_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, OSError, EOFError, RuntimeError, MemoryError, RecursionError,
    struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""What the libraries of pickle and zip raise for files that are none."""

Places = Mapping[str, tuple[int, int]]
"""Of each storage by key: its first byte in the file, and how many there are."""


def read_header(path: Path) -> dict[str, Entry]:
    """Tensors of one file by name; each is checked to lie inside the file.

    Raises ConversionError, naming the file, where it is damaged, or its pickle holds or would do anything else.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                content, places = _archive(path, file)
            else:
                file.seek(0)
                content, places = _old(path, file)
    except NotTensorsError as error:
        raise ConversionError(
            path,
            f"is a pickle with {error}; only tables of tensors are read, because a pickle may run any program. Save it "
            "again as safetensors where you trust it",
        ) from error
    except _DAMAGE as error:
        raise ConversionError(path, f"is not a whole checkpoint of PyTorch ({error}): {_AGAIN}") from error
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict):
        raise ConversionError(path, "holds no table of tensors")
    if nameless := [name for name in content if not isinstance(name, str)]:
        raise ConversionError(
            path, f"holds {nameless[0]!r} where a tensor's name belongs: save it again from the model (its state_dict)"
        )
    return {name: _entry(path, name, view, places) for name, view in content.items()}


def _archive(path: Path, file: IO[bytes]) -> tuple[Any, Places]:
    size = path.stat().st_size
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        programs = [name for name in names if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(programs) != 1:
            raise ValueError("a zip archive without data.pkl")
        if archive.getinfo(programs[0]).file_size > _MOST_PICKLE_BYTES:
            raise NotTensorsError("more names than any model has")
        order = f"{programs[0].removesuffix('data.pkl')}byteorder"
        if order in names and archive.getinfo(order).file_size < 20 and archive.read(order) != b"little":
            raise NotTensorsError("numbers in big-endian order")
        content = pickled.read(_bounded(archive, programs[0]))
        prefix = programs[0].removesuffix("data.pkl") + "data/"
        places = {}
        for info in archive.infolist():
            if info.filename.startswith(prefix) and not info.is_dir():
                if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                    raise NotTensorsError("compressed or encrypted tensors")
                places[info.filename.removeprefix(prefix)] = _place(file, info, size), info.file_size
    return content, places


def _bounded(archive: zipfile.ZipFile, name: str) -> bytes:
    """The content of an entry, at most as much as it says to have."""
    with archive.open(name) as entry:
        content = entry.read(_MOST_PICKLE_BYTES + 1)
    if len(content) > _MOST_PICKLE_BYTES:
        raise NotTensorsError("more names than any model has")
    return content


def _place(file: IO[bytes], info: zipfile.ZipInfo, size: int) -> int:
    """Where the bytes of an entry begin: behind a header of its own, whose fields may be of other lengths."""
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise ValueError(f"{info.filename} is not where the archive says")
    begin = info.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", header[26:30]))
    if begin + info.file_size > size:
        raise ValueError(f"cut short: {info.filename} ends beyond byte {size}")
    return begin


def _old(path: Path, file: IO[bytes]) -> tuple[Any, Places]:
    pickles = io.BytesIO(file.read(_MOST_PICKLE_BYTES))
    if not _begins(pickles):
        raise ValueError("it does not begin as one")
    version, system, content, keys = (pickled.read(pickles) for _ in range(4))
    if version != 1001 or not isinstance(system, dict) or system.get("little_endian") is not True:
        raise NotTensorsError("another version of the format, or big-endian numbers")
    widths = {view.storage.key: _width(view.storage) for view in _views(content)}
    places: dict[str, tuple[int, int]] = {}
    at, size = pickles.tell(), path.stat().st_size
    for key in keys:
        file.seek(at)
        (count,) = struct.unpack("<q", file.read(8))
        length = count * widths[key]
        if count < 0 or at + 8 + length > size:
            raise ValueError(f"cut short: storage {key} ends beyond byte {size}")
        places[key] = at + 8, length
        at += 8 + length
    return content, places


def _begins(pickles: IO[bytes]) -> bool:
    try:
        number = pickled.read(pickles)
    except NotTensorsError:
        return False
    return isinstance(number, int) and number == _OLD_MAGIC


def _views(content: Any) -> list[View]:
    table = content.get("state_dict", content) if isinstance(content, dict) else {}
    return [view for view in table.values() if isinstance(view, View)] if isinstance(table, dict) else []


def _width(storage: Storage) -> int:
    width = itemsize(_TYPES.get(storage.kind, ""))
    if width is None:
        raise NotTensorsError(f"a {storage.kind[:40]}; weights must be one of {', '.join(_TYPES)}")
    return width


def _entry(path: Path, name: Any, view: Any, places: Places) -> Entry:
    if not isinstance(view, View):
        raise ConversionError(path, f"{str(name)[:80]} is no tensor, but a {type(view).__name__}")
    try:
        width = _width(view.storage)
    except NotTensorsError as error:
        raise ConversionError(path, f"{name} is {error}") from error
    begin, length = places.get(view.storage.key, (0, -1))
    last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    if 0 not in view.shape and (last + 1) * width > length:
        raise ConversionError(path, f"{name} of shape {view.shape} lies beyond its storage of {length} bytes: {_AGAIN}")
    return Entry(path, _TYPES[view.storage.kind], view.shape, begin + view.offset * width, view.strides)
