"""Flax's msgpack files: a tree of arrays in one file, of which nothing is read but the places of the arrays.

Format: https://github.com/msgpack/msgpack/blob/master/spec.md; arrays are extension 1 (numbers: 3), a message of
shape, type and bytes, and those above 1 GiB are cut in pieces. A library for msgpack would copy every array into
memory; a model can be larger than that.
"""

import math
import mmap
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored, dtype_of, is_shape, piece_of_file

_CHUNKED = "__msgpack_chunked_array__"
_DEEPEST = 64
_NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZES = {1: ">B", 2: ">H", 4: ">I"}
# first byte -> what follows, and how many bytes say its length
_SIZED = {
    0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4),
    0xC7: ("extension", 1), 0xC8: ("extension", 2), 0xC9: ("extension", 4),
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4),
    0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip


def read_tree(path: Path) -> dict[str, Any]:
    """The tree of a file: nested tables whose leaves are `Stored` arrays, numbers, text, bytes, lists or None.

    Raises ConversionError, naming the file, where it is cut short, damaged or no such file.
    """
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ConversionError(path, "is empty: copy or download it again")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                parser = _Parser(path, content)
                tree = parser.value(0)
                parser.expect_end()
    except (_DamagedError, struct.error, UnicodeDecodeError) as error:
        raise ConversionError(
            path, f"is not a whole msgpack file of Flax ({error}): copy or download it again"
        ) from error
    except OSError as error:
        raise ConversionError(path, f"cannot be read ({error.strerror})") from error
    if not isinstance(tree, dict):
        raise ConversionError(path, "holds no tree of arrays: it is not a checkpoint of Flax or T5X")
    return tree


class _DamagedError(ValueError):
    pass


class _Parser:
    def __init__(self, path: Path, content: mmap.mmap) -> None:
        self._path = path
        self._content = content
        self._size = len(content)
        self._at = 0

    def expect_end(self) -> None:
        if self._at != self._size:
            raise _DamagedError(f"{self._size - self._at} bytes are left over at its end")

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise _DamagedError(f"deeper than {_DEEPEST} levels at byte {self._at}")
        first = self._take(1)[0]
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first < 0xC0:
            kind, count = ("map", first & 15) if first < 0x90 else ("list", first & 15) if first < 0xA0 else ("text", 0)
            return self._sized(kind, first & 31 if kind == "text" else count, depth)
        if first in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[first]
        if first in _NUMBERS:
            return self._number(_NUMBERS[first])
        if first in _SIZED:
            kind, width = _SIZED[first]
            return self._sized(kind, self._number(_SIZES[width]), depth)
        if 0xD4 <= first <= 0xD8:
            return self._sized("extension", 1 << (first - 0xD4), depth)
        raise _DamagedError(f"byte {self._at - 1} is {first:#x}, which begins nothing")

    def _sized(self, kind: str, count: int, depth: int) -> Any:
        if kind == "text":
            return self._take(count).decode("utf-8")
        if kind == "bytes":
            return self._skip(count)
        if kind == "extension":
            return self._extension(count, depth)
        if count * (2 if kind == "map" else 1) > self._size - self._at:
            raise _DamagedError(f"a {kind} of {count} entries at byte {self._at}, where {self._size} bytes are all")
        if kind == "list":
            return [self.value(depth + 1) for _ in range(count)]
        return self._map(count, depth)

    def _map(self, count: int, depth: int) -> Any:
        table: dict[str, Any] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if not isinstance(key, str) or key in table:
                raise _DamagedError(f"a name is {str(key)[:40]!r} before byte {self._at}")
            table[key] = self.value(depth + 1)
        return _whole(self._path, table) if _CHUNKED in table else table

    def _extension(self, count: int, depth: int) -> Stored:
        code, end = self._take(1)[0], self._at + count + 1
        if code not in (1, 3):
            raise _DamagedError(f"an extension {code} before byte {self._at}, which Flax writes for no array")
        message = self.value(depth + 1)
        if self._at != end - 1 or not isinstance(message, list) or len(message) != 3:
            raise _DamagedError(f"an array that is none before byte {self._at}")
        shape, dtype, place = message
        known = dtype_of(dtype)
        if known is None or not is_shape(shape) or not isinstance(place, range):
            raise _DamagedError(f"an array of type {str(dtype)[:20]!r} and shape {str(shape)[:60]}")
        if math.prod(shape) * known.itemsize != len(place):
            raise _DamagedError(f"an array of shape {shape} and type {dtype} in {len(place)} bytes")
        return piece_of_file(self._path, dtype, tuple(shape), place.start)

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, count: int) -> bytes:
        place = self._skip(count)
        return self._content[place.start : place.stop]

    def _skip(self, count: int) -> range:
        """The next bytes by their place, unread."""
        if count > self._size - self._at:
            raise _DamagedError(f"cut short: {count} bytes are to follow byte {self._at}, and it has {self._size}")
        self._at += count
        return range(self._at - count, self._at)


def _whole(path: Path, table: dict[str, Any]) -> Stored:
    """One array from the pieces that Flax cuts it into."""
    shape, pieces = _as_list(table.get("shape")), _as_list(table.get("chunks"))
    if not is_shape(shape) or not pieces or not all(isinstance(piece, Stored) for piece in pieces):
        raise _DamagedError("an array in pieces that are none")
    if math.prod(shape) != sum(math.prod(piece.shape) for piece in pieces) or len({p.dtype for p in pieces}) > 1:
        raise _DamagedError(f"an array of shape {shape} in pieces that are not its size")

    def read() -> np.ndarray:
        return np.concatenate([piece.read().reshape(-1) for piece in pieces]).reshape(shape)

    return replace(pieces[0], shape=tuple(shape), read=read, look=None)


def _as_list(value: Any) -> list[Any] | None:
    """Flax has lists as tables of "0", "1", ..."""
    if isinstance(value, dict) and value.keys() == {str(number) for number in range(len(value))}:
        return [value[str(number)] for number in range(len(value))]
    return value if isinstance(value, list) else None
