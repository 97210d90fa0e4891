"""Writing arrays of zarr version 2 chunk by chunk, compressed by all cores; where they go is the caller's."""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from spanloom.conversion.weights import in_order
from spanloom.conversion.zarr_arrays import META

CHUNK_BYTES = 1 << 26
"""Largest chunk, as T5X has it: 64 MiB."""
_NAMES = {"float32": "<f4", "float64": "<f8", "int32": "<i4", "bfloat16": "bfloat16"}

Put = Callable[[str, bytes], object]
"""Keeps the bytes of a name within an array: `.zarray`, `0.1`."""


def chunk_shape(shape: Sequence[int], most: int) -> tuple[int, ...]:
    """Shape of the chunks of an array, of at most so many numbers each, as T5X chooses it.

    The longest axis is cut to its next smaller divisor, again and again, so that chunks fill the array exactly.
    """
    chunk = list(shape)
    while math.prod(chunk) > most and max(chunk) > 1:
        longest = chunk.index(max(chunk))
        chunk[longest] = _next_divisor(shape[longest], chunk[longest])
    return tuple(chunk)


def _next_divisor(size: int, below: int) -> int:
    return next(divisor for divisor in range(below - 1, 0, -1) if size % divisor == 0)


def metadata(shape: Sequence[int], chunks: Sequence[int], dtype: str, compressor: Mapping[str, Any] | None) -> bytes:
    """The content of an array's `.zarray`, to the byte as TensorStore writes it."""
    described = {
        "chunks": list(chunks),
        "compressor": None if compressor is None else dict(compressor),
        "dimension_separator": ".",
        "dtype": _NAMES[dtype],
        "fill_value": None,
        "filters": None,
        "order": "C",
        "shape": list(shape),
        "zarr_format": 2,
    }
    return json.dumps(described, separators=(",", ":")).encode("utf-8")


class ChunkWriter:
    """Compresses and puts chunks in threads, of which few are in memory at a time."""

    def __init__(self, encode: Callable[[np.ndarray], bytes]) -> None:
        """`encode` makes the content of a chunk of its bytes (uint8)."""
        workers = os.cpu_count() or 1
        self._encode = encode
        self._pool = ThreadPoolExecutor(workers)
        self._most = workers + 1
        self._under_way: set[Future[object]] = set()

    def __enter__(self) -> "ChunkWriter":
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=failed is not None)
        if failed is None:
            self._take_results(self._under_way)

    def write(self, array: np.ndarray, chunks: Sequence[int], put: Put, prefix: tuple[int, ...] = ()) -> None:
        """Put every chunk of an array; `prefix` stands before its place in the name. The array is not to
        change afterwards. Raises what an earlier `put` raised."""
        counts = [-(-size // chunk) for size, chunk in zip(array.shape, chunks, strict=True)]
        for place in np.ndindex(*counts):
            part = array[tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, chunks, strict=True))]
            name = ".".join(map(str, (*prefix, *place))) or "0"
            content = in_order(part).reshape(-1).view(np.uint8)
            self._submit(name, content, put)

    def _submit(self, name: str, content: np.ndarray, put: Put) -> None:
        if len(self._under_way) >= self._most:
            done, self._under_way = wait(self._under_way, return_when=FIRST_COMPLETED)
            self._take_results(done)
        self._under_way.add(self._pool.submit(lambda: put(name, self._encode(content))))

    def _take_results(self, done: set[Future[object]]) -> None:
        for future in done:
            future.result()


def put_metadata(
    put: Put, shape: Sequence[int], chunks: Sequence[int], dtype: str, compressor: Mapping[str, Any] | None
) -> None:
    """Put an array's description."""
    put(META, metadata(shape, chunks, dtype, compressor))
