"""A model's weights, read one part at a time whatever file they are in: a layer of a parameter, never the whole model.

This is what every reader gives and every writer takes, so that a model converts in the memory that its largest matrix
needs. Names and shapes are ours (`spanloom.model.params.flatten`); numbers come in the type they are stored in.
"""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.model.params import T5, declare, flatten, unflatten
from spanloom.settings.model import Model

Dtype = Literal["float32", "bfloat16", "keep"]
"""In what weights are written; keep: bfloat16 where the source has it, else float32."""
BLOCK_BYTES = 1 << 25
_TURNED_AT_A_TIME = 16
_ALIGNMENT = 64  # bytes
_THREADS_FROM = 1 << 20  # bytes: below, to start threads takes longer than to copy
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Weight:
    """One of our parameters, unread."""

    shape: tuple[int, ...]
    """Our shape; layers, where they are stacked, on axis 0."""
    layers: int | None
    """How many layers there are to read; None where it is read in one piece."""
    dtype: str
    """NumPy's name of the type it is stored in, or bfloat16."""
    read: Callable[[int | None], np.ndarray]
    """The numbers of one layer (None: all), in our shape without the layers' axis and in the type as stored. It may be
    a view of the file; several threads may read at once. Raises ConversionError where they are damaged."""
    place: Callable[[int | None], tuple[str, Path]]
    """What the source calls that part, and the file it is in: for errors."""
    read_alone: bool = True
    """Whether one layer is read without reading all others."""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def parts(self) -> tuple[int | None, ...]:
        """What `read` takes, in order."""
        return (None,) if self.layers is None else tuple(range(self.layers))


Weights = Mapping[str, Weight]
"""By our flat name."""


def parts(weights: Weights) -> list[tuple[str, int | None]]:
    """Every part of a model: name and layer, one parameter after another."""
    return [(name, layer) for name, weight in weights.items() for layer in weight.parts]


def written_type(stored: str, wanted: Dtype) -> Literal["float32", "bfloat16"]:
    """In what a weight of that type is written."""
    if wanted == "keep":
        return "bfloat16" if stored == "bfloat16" else "float32"
    return wanted


def checked(weight: Weight, layer: int | None, wanted: Dtype) -> np.ndarray:
    """A part as it is written, every number finite. Raises ConversionError where the source or the result is not.

    float32 -> bfloat16 rounds to the nearest, ties to even; bfloat16 -> float32 -> bfloat16 loses nothing.
    """
    stored = finite(weight.read(layer), *weight.place(layer))
    result = cast(stored, written_type(weight.dtype, wanted))
    return result if result.dtype == stored.dtype else finite(result, *weight.place(layer))


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in that type; itself where it is already, infinite where a number is too large for it."""
    with np.errstate(over="ignore"):
        return array.astype(BFLOAT16 if dtype == "bfloat16" else dtype, copy=False)


def blocks(array: np.ndarray, limit: int = BLOCK_BYTES) -> Iterator[np.ndarray]:
    """An array in pieces along its first axis, each of about so many bytes, in C order: a view of a file, turned or
    not, is never whole in memory."""
    if array.ndim == 0 or array.nbytes <= limit:
        yield in_order(array)
        return
    rows = max(1, limit // max(1, array.nbytes // array.shape[0]))
    for begin in range(0, array.shape[0], rows):
        yield in_order(array[begin : begin + rows])


def bits(array: np.ndarray) -> np.ndarray:
    """The same memory as unsigned integers: NaN is then like NaN, and -0 unlike 0."""
    return array.view(f"u{array.dtype.itemsize}")


def same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two arrays are equal in type, shape and every bit."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if is_turned(first) and is_turned(second):
        first, second = first.T, second.T
    pairs = zip(blocks(first), blocks(second), strict=True)
    return all(np.array_equal(bits(one), bits(other)) for one, other in pairs)


def is_turned(array: np.ndarray) -> bool:
    """Whether a matrix lies in its file with its axes swapped: to walk through it row by row takes ten times longer."""
    return array.ndim == 2 and array.strides[0] < array.strides[1]


def in_order(array: np.ndarray) -> np.ndarray:
    """The array in C order: itself where it is already, else a copy.

    A turned matrix is copied some columns at a time, by all cores, so that what one line of the cache holds is used
    before it is lost; NumPy by itself takes six times longer on one.
    """
    if not is_turned(array):
        return np.ascontiguousarray(array)
    result = empty(array.shape, array.dtype)

    def copy(first: int, stop: int) -> None:
        for begin in range(first, stop, _TURNED_AT_A_TIME):
            end = min(begin + _TURNED_AT_A_TIME, stop)
            result[:, begin:end] = array[:, begin:end]

    if array.nbytes < _THREADS_FROM:
        copy(0, array.shape[1])
        return result
    cores = os.cpu_count() or 1
    bounds = [array.shape[1] * core // cores for core in range(cores + 1)]
    with ThreadPoolExecutor(cores) as threads:
        list(threads.map(copy, bounds, bounds[1:]))
    return result


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array that JAX on a CPU takes as it is, where it copies one that begins elsewhere."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    return memory[first : first + size].view(dtype).reshape(shape)


def owned(array: np.ndarray) -> np.ndarray:
    """The array itself, or a copy of a piece of a larger one in memory, all of which it would keep there."""
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    if isinstance(memory, np.memmap) or memory.nbytes <= array.nbytes + _ALIGNMENT:
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def finite(array: np.ndarray, name: str, file: Path) -> np.ndarray:
    """The array itself. Raises ConversionError where it holds NaN or infinity, with what that comes from."""
    lying = array.T if is_turned(array) else array
    if count := sum(block.size - _finite_in(block) for block in blocks(lying)):
        raise ConversionError(
            file,
            f"{name} holds {count:,} of {array.size:,} numbers that are NaN or infinite: such a model writes nothing. "
            "Its training went wrong, or it was saved in float16, which overflows: take another copy",
        )
    return array


def _finite_in(block: np.ndarray) -> int:
    if block.dtype == BFLOAT16:  # NumPy has no fast test for it; all bits of the exponent set is what it looks for
        return int(np.count_nonzero((block.view(np.uint16) & 0x7F80) != 0x7F80))
    return int(np.count_nonzero(np.isfinite(block)))


def read_all(model: Model, weights: Weights) -> T5:
    """All of a model's weights in memory, NumPy float32. ConversionError names one that holds NaN or infinity."""
    return unflatten(model, {name: read_whole(weights[name]) for name in flatten(declare(model))})


def read_whole(weight: Weight) -> np.ndarray:
    """All layers of one weight in memory, NumPy float32. ConversionError where it holds NaN or infinity."""
    array = np.empty(weight.shape, np.float32)
    for layer in weight.parts:
        array[... if layer is None else layer] = checked(weight, layer, "float32")
    return array


def as_float32(array: np.ndarray) -> np.ndarray:
    """The array in float32: itself where it is already, else a copy that JAX takes as it is."""
    if array.dtype == np.float32:
        return array
    result = empty(array.shape, np.dtype(np.float32))
    result[...] = array
    return result


def in_memory(params: T5, origin: str) -> dict[str, Weight]:
    """Weights that have been read, as those of a file are; `origin` is named in errors."""
    return {name: _in_memory(name, leaf, Path(origin)) for name, leaf in flatten(params).items()}


def _in_memory(name: str, leaf: np.ndarray, origin: Path) -> Weight:
    def read(layer: int | None) -> np.ndarray:
        return np.asarray(leaf if layer is None else leaf[layer])

    layers = leaf.shape[0] if "/layers/" in name else None
    return Weight(tuple(leaf.shape), layers, str(leaf.dtype), read, lambda layer: (name, origin))
