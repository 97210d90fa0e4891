"""Arrays of zarr version 2, chunk by chunk, from a folder or any other store of named bytes.

A chunk that is absent stands for zeros in zarr, and so a lost file goes unnoticed by its libraries; here every chunk
must be there. https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html
"""

import functools
import itertools
import json
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored import Stored, dtype_of, is_shape
from spanloom.conversion.whole_file import read_whole

META = ".zarray"
_MAX_CHUNK_BYTES = 1 << 34
_NAMES = {
    "<f8": "float64", "<f4": "float32", "<f2": "float16", "<i8": "int64", "<i4": "int32", "<i2": "int16",
    "<u4": "uint32", "<u2": "uint16", "|i1": "int8", "|u1": "uint8", "|b1": "bool",
}  # fmt: skip


@dataclass(frozen=True)
class Chunks:
    """Where the chunks of one array are."""

    names: frozenset[str]
    """Names of all that is there."""
    get: Callable[[str], bytes]
    """The content of one of them."""
    file: Callable[[str], Path]
    """The path to name in errors about one of them."""


def folder_chunks(folder: Path) -> Chunks:
    """The chunks of an array that has a folder of its own. ConversionError where there is no such folder."""
    if not folder.is_dir():
        raise ConversionError(folder, "is missing, though the checkpoint's index names it: copy the checkpoint again")

    def get(name: str) -> bytes:
        try:
            return read_whole(folder / name, _MAX_CHUNK_BYTES)
        except OSError as error:
            raise ConversionError(folder / name, f"cannot be read ({error.strerror})") from error

    names = frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return Chunks(names, get, lambda name: folder / name)


class LastChunk:
    """The chunk that was decoded last: layers that share one are read one after another. Threads may share it."""

    def __init__(self) -> None:
        self._last: tuple[object, np.ndarray] | None = None

    def get(self, key: object, decode: Callable[[], np.ndarray]) -> np.ndarray:
        """That of `key`, which `decode` gives where it is not the last one."""
        last = self._last
        if last is None or last[0] != key:
            last = self._last = None  # let go of the old one before there is a new one
            last = self._last = key, decode()
        return last[1]


def open_array(chunks: Chunks, described: Mapping[str, Any] | None = None, last: LastChunk | None = None) -> Stored:
    """The array that these chunks are of, as its own .zarray says, else as `described` does (the same fields).

    `last` is shared by arrays that are read by turns, so that one chunk is kept in memory for all of them, and what
    threads are decoding beside it.

    Raises ConversionError, naming the file, for a missing chunk, a description that makes no sense or disagrees with
    the other one, and for what is not read here (filters, other compressors).
    """
    meta = _description(chunks, described)
    file = chunks.file(META)
    shape, sizes, dtype = meta.get("shape"), meta.get("chunks"), meta.get("dtype")
    dtype = _NAMES.get(dtype, dtype) if isinstance(dtype, str) else dtype
    known = dtype_of(dtype)
    if not is_shape(shape) or not is_shape(sizes) or len(shape) != len(sizes) or 0 in sizes:
        raise ConversionError(file, f"describes no array (shape {str(shape)[:60]}, chunks {str(sizes)[:60]})")
    if known is None:
        raise ConversionError(file, f"has type {str(dtype)[:20]!r}, which no checkpoint of T5X has")
    if math.prod(sizes) * known.itemsize > _MAX_CHUNK_BYTES:
        raise ConversionError(file, f"has chunks of shape {sizes}, larger than any that are written")
    if meta.get("zarr_format", 2) != 2 or meta.get("order", "C") != "C" or meta.get("filters"):
        raise ConversionError(file, "is not zarr version 2 in C order without filters, which is all that T5X writes")
    decode, last = _decoder(meta.get("compressor"), file), last or LastChunk()
    separator = "/" if meta.get("dimension_separator") == "/" else "."
    counts = [-(-size // chunk) for size, chunk in zip(shape, sizes, strict=True)]
    _refuse_missing(chunks, counts, separator)

    def chunk_at(place: tuple[int, ...]) -> np.ndarray:
        name = _name(place, separator)
        content = decode(chunks.get(name), math.prod(sizes) * known.itemsize, chunks.file(name))
        return np.frombuffer(content, known).reshape(sizes)

    def where(place: tuple[int, ...]) -> list[slice]:
        return [slice(i * n, min((i + 1) * n, size)) for i, n, size in zip(place, sizes, shape, strict=True)]

    def read() -> np.ndarray:
        array = np.empty(shape, known)
        for place in np.ndindex(*counts):
            ranges = where(place)
            array[tuple(ranges)] = chunk_at(place)[tuple(slice(part.stop - part.start) for part in ranges)]
        return array

    def take(axis: int, number: int) -> np.ndarray:
        of, inside = divmod(number, sizes[axis])

        def part(place: tuple[int, ...]) -> tuple[tuple[slice, ...], np.ndarray]:
            ranges = where(place)
            chunk = last.get((chunks.file(""), place), functools.partial(chunk_at, place))
            del ranges[axis]
            within = [slice(part.stop - part.start) for part in ranges]
            along: tuple[Any, ...] = (*within[:axis], inside, *within[axis:])
            return tuple(ranges), chunk[along]

        places = [(*rest[:axis], of, *rest[axis:]) for rest in np.ndindex(*counts[:axis], *counts[axis + 1 :])]
        if len(places) == 1:
            return part(places[0])[1]
        array = np.empty((*shape[:axis], *shape[axis + 1 :]), known)
        for ranges, numbers in map(part, places):
            array[ranges] = numbers
        return array

    return Stored(file.parent, str(dtype), tuple(shape), read, take=take, chunk=tuple(sizes))


def _description(chunks: Chunks, described: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if META not in chunks.names:
        if described is None:
            raise ConversionError(chunks.file(META), "is missing: copy the checkpoint again")
        return described
    try:
        meta = json.loads(chunks.get(META).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConversionError(chunks.file(META), f"is not valid JSON ({error}): copy it again") from error
    if not isinstance(meta, dict):
        raise ConversionError(chunks.file(META), "describes no array")
    if described is not None and described.get("shape", meta.get("shape")) != meta.get("shape"):
        raise ConversionError(
            chunks.file(META), f"says shape {meta.get('shape')}, and the checkpoint's index {described['shape']}"
        )
    return meta


def _refuse_missing(chunks: Chunks, counts: list[int], separator: str) -> None:
    """Looks at no more names than there can be chunks: a damaged shape may have more than anybody can count."""
    most = len(chunks.names) + 1
    for place in itertools.islice(np.ndindex(*counts) if math.prod(counts) <= most else _first(counts, most), most):
        if (name := _name(place, separator)) not in chunks.names:
            raise ConversionError(
                chunks.file(name),
                f"is missing, one of the {math.prod(counts):,} chunks of this array: copy the checkpoint again",
            )


def _first(counts: list[int], most: int) -> Any:
    return itertools.product(*(range(min(count, most)) for count in counts))


def _name(place: tuple[int, ...], separator: str) -> str:
    return separator.join(map(str, place)) or "0"


def _decoder(compressor: object, file: Path) -> Callable[[bytes, int, Path], bytes]:
    name = compressor.get("id") if isinstance(compressor, dict) else compressor
    if name is None:
        unpack: Callable[[bytes, int], bytes] = lambda content, size: content  # noqa: E731
    elif name in ("gzip", "zlib"):
        unpack = lambda content, size: _inflate(content, size, 31 if name == "gzip" else 15)  # noqa: E731
    elif name == "zstd":
        unpack = lambda content, size: zstandard.ZstdDecompressor().stream_reader(content).read(size + 1)  # noqa: E731
    elif name == "blosc":  # TensorStore's default, where nobody names another
        unpack = _unblosc
    else:
        raise ConversionError(file, f"is compressed by {str(name)[:40]!r}; gzip, zlib, zstd and blosc are read here")

    def decode(content: bytes, size: int, chunk: Path) -> bytes:
        try:
            unpacked = unpack(content, size)
        except (zlib.error, zstandard.ZstdError, _BloscError) as error:
            raise ConversionError(chunk, f"is damaged ({error}): copy the checkpoint again") from error
        if len(unpacked) != size:
            found = f"more than {size:,}" if len(unpacked) > size else f"{len(unpacked):,} of {size:,}"
            raise ConversionError(chunk, f"is damaged: it holds {found} bytes: copy the checkpoint again")
        return unpacked

    return decode


class _BloscError(ValueError):
    pass


def _unblosc(content: bytes, size: int) -> bytes:
    """By TensorStore, as an array of bytes in memory; the size that the chunk says is looked at before."""
    import tensorstore

    said = int.from_bytes(content[4:8], "little")  # https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
    if len(content) < 16 or said != size:
        raise _BloscError(f"a chunk of blosc that says {said:,} bytes, where {size:,} are to be")
    context = tensorstore.Context()
    compressor = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}  # the chunk itself says what it has
    layout = {"shape": [size], "chunks": [size], "dtype": "|u1", "order": "C"}
    meta: dict[str, Any] = {**layout, "compressor": compressor, "filters": None, "fill_value": None, "zarr_format": 2}
    spec = {"driver": "zarr", "kvstore": "memory://", "metadata": meta, "open": True, "assume_metadata": True}
    try:
        tensorstore.KvStore.open("memory://", context=context).result().write("0", content).result()
        return bytes(tensorstore.open(spec, context=context).result().read().result().data)
    except ValueError as error:
        raise _BloscError(str(error).splitlines()[0][:100]) from error


def _inflate(content: bytes, size: int, form: int) -> bytes:
    """Never more than one byte beyond `size`, however much a damaged file would unpack to."""
    stream = zlib.decompressobj(form)
    unpacked = stream.decompress(content, size + 1)
    if len(unpacked) == size and (not stream.eof or stream.unused_data):
        raise zlib.error("cut short or followed by something else")
    return unpacked
