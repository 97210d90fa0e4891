"""An array in a file that has not been read yet, whatever the file's format."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

_DTYPES = {
    name: np.dtype(name)
    for name in (
        "float64",
        "float32",
        "float16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint32",
        "uint16",
        "uint8",
        "bool",
    )
}
_DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Stored:
    """One array: its size is known and was found to fit its file; the numbers are still there."""

    file: Path
    """The file to name where something is wrong with it."""
    dtype: str
    """NumPy's name of the type, or bfloat16."""
    shape: tuple[int, ...]
    """Size of each axis."""
    read: Callable[[], np.ndarray]
    """The numbers, in type and shape as above. Raises ConversionError, naming the file, where they are damaged."""
    look: Callable[[], np.ndarray] | None = None
    """The same, of which only that is read which is used; None where they do not lie one after another."""
    take: Callable[[int, int], np.ndarray] | None = None
    """Of an array in chunks what is at one place along an axis (axis, place), from the chunks that have some of it."""
    chunk: tuple[int, ...] | None = None
    """Size of its chunks along each axis, where it is in chunks."""


def dtype_of(name: object) -> np.dtype | None:
    """The type of this name, little-endian; None where no checkpoint has such a type."""
    return _DTYPES.get(name) if isinstance(name, str) else None


def is_shape(value: object) -> TypeGuard[Sequence[int]]:
    """Whether a list says the size of each axis, in numbers that are sizes."""
    return (
        isinstance(value, list | tuple)
        and len(value) <= 8
        and all(type(size) is int and 0 <= size < 2**48 for size in value)
    )


def taken(array: Stored, axis: int, place: int) -> np.ndarray:
    """What is at one place along an axis, without that axis; as little is read as the file allows."""
    if array.take is not None:
        return array.take(axis, place)
    whole = (array.look or array.read)()
    where: tuple[Any, ...] = (*[slice(None)] * axis, place)
    return whole[where]


def piece_of_file(file: Path, dtype: str, shape: tuple[int, ...], begin: int) -> Stored:
    """An array whose bytes lie one after another in a file from `begin` on."""

    def look() -> np.ndarray:
        count = math.prod(shape)
        if count == 0:
            return np.zeros(shape, _DTYPES[dtype])
        return np.memmap(file, _DTYPES[dtype], mode="r", offset=begin, shape=(count,)).reshape(shape)

    return Stored(file, dtype, shape, lambda: np.array(look()), look)
