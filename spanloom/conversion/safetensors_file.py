"""Reading safetensors files without trusting them: every size is checked before an array is handed out.

Format: 8 bytes little-endian length of a JSON header, the header, then the tensors' bytes one after another
(https://github.com/huggingface/safetensors). Arrays are memory-mapped; nothing is read before it is used.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import ml_dtypes
import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.whole_file import read_whole

AnyTensor = TypeVar("AnyTensor")
_LONGEST_NAME = 200  # file systems allow 255 bytes
MAX_HEADER_BYTES = 100_000_000  # the limit of the format's own library
INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"

# bfloat16 is read as its 16 bits: NumPy has no such type, and its bits are float32's upper half.
_STORED_AS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True)
class Entry:
    """Where one tensor lies."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int
    """First byte, counted from the start of the file."""
    strides: tuple[int, ...] | None = None
    """Numbers from one to the next along each axis; None: one row after another."""

    def look(self) -> np.ndarray:
        """The tensor in the type it is stored in, as a view of the file."""
        stored = _view(self)
        return stored.view(ml_dtypes.bfloat16) if self.dtype == "BF16" else stored

    def load(self) -> np.ndarray:
        """The tensor as float32; float16 and bfloat16 are widened exactly, float64 is rounded."""
        return load(self)

    def load_rows(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 of a matrix as float32, without reading the rest."""
        return load_rows(self, first, last)


def itemsize(dtype: str) -> int | None:
    """Bytes of one number of a type by safetensors' name; None for types that no weights are in."""
    return np.dtype(_STORED_AS[dtype]).itemsize if dtype in _STORED_AS else None


def open_folder(folder: Path) -> dict[str, Entry]:
    """Tensors of a Hugging Face folder by name, from one file or from the shards of its index.

    Raises ConversionError where a file is missing, cut short, or says other than its index.
    """
    single, index = folder / SINGLE_NAME, folder / INDEX_NAME
    if single.is_file():
        return read_header(single)
    if index.is_file():
        return open_shards(folder, index, read_header)
    raise ConversionError(folder, _what_weights_instead(folder))


def read_header(path: Path) -> dict[str, Entry]:
    """Tensors of one safetensors file by name; every one is checked to lie inside the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise ConversionError(
                path, f"not a whole safetensors file ({size} bytes, header of {length}): copy or download it again"
            )
        raw = file.read(length)
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConversionError(path, f"the safetensors header is damaged ({error}): download it again") from error
    if not isinstance(header, dict):
        raise ConversionError(path, "the safetensors header is not a table of tensors: download it again")
    header.pop("__metadata__", None)
    entries = {name: _entry(path, name, fields, 8 + length, size) for name, fields in header.items()}
    _check_no_overlap(path, entries)
    return entries


def load(entry: Entry) -> np.ndarray:
    """One tensor as float32; float16 and bfloat16 are widened exactly, float64 is rounded."""
    return _as_float32(_view(entry), entry.dtype)


def _view(entry: Entry) -> np.ndarray:
    count, kind = math.prod(entry.shape), np.dtype(_STORED_AS[entry.dtype])
    if count == 0:
        return np.zeros(entry.shape, kind)
    if entry.strides is not None:
        count = 1 + sum((size - 1) * stride for size, stride in zip(entry.shape, entry.strides, strict=True))
    stored: np.ndarray = np.memmap(entry.file, dtype=kind, mode="r", offset=entry.begin, shape=(count,))
    if entry.strides is not None:
        strides = [stride * kind.itemsize for stride in entry.strides]
        stored = np.lib.stride_tricks.as_strided(stored, entry.shape, strides, writeable=False)
    return stored.reshape(entry.shape)


def load_rows(entry: Entry, first: int, last: int) -> np.ndarray:
    """Rows first..last-1 of a matrix as float32, without reading the rest."""
    width = math.prod(entry.shape[1:]) if entry.strides is None else entry.strides[0]
    begin = entry.begin + first * width * np.dtype(_STORED_AS[entry.dtype]).itemsize
    return load(replace(entry, shape=(last - first, *entry.shape[1:]), begin=begin))


def _as_float32(stored: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return np.array(stored, np.float32)


def _entry(path: Path, name: str, fields: object, data_begin: int, size: int) -> Entry:
    try:
        dtype, shape, (begin, end) = fields["dtype"], tuple(fields["shape"]), fields["data_offsets"]  # type: ignore[index]
        whole = all(type(number) is int and 0 <= number < 2**60 for number in (*shape, begin, end))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ConversionError(path, f"the header's entry of tensor {name!r} is damaged: download the file again")
    if not isinstance(dtype, str) or dtype not in _STORED_AS:
        known = ", ".join(_STORED_AS)
        raise ConversionError(path, f"tensor {name!r} has type {dtype}; weights must be one of {known}")
    expected = math.prod(shape) * np.dtype(_STORED_AS[dtype]).itemsize
    if end - begin != expected:
        raise ConversionError(path, f"tensor {name!r} of shape {shape} takes {end - begin} bytes instead of {expected}")
    if data_begin + end > size:
        raise ConversionError(
            path,
            f"cut short: tensor {name!r} ends at byte {data_begin + end}, the file has {size}: download it again",
        )
    return Entry(path, dtype, shape, data_begin + begin)


def _check_no_overlap(path: Path, entries: Mapping[str, Entry]) -> None:
    end, before = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
        length = math.prod(entry.shape) * np.dtype(_STORED_AS[entry.dtype]).itemsize
        if length and entry.begin < end:
            raise ConversionError(path, f"tensors {before!r} and {name!r} overlap: the header is damaged")
        if length:
            end, before = entry.begin + length, name


def open_shards(
    folder: Path,
    index: Path,
    read: Callable[[Path], Mapping[str, AnyTensor]],
    rename: Callable[[str], str] = str,
) -> dict[str, AnyTensor]:
    """Tensors by name from the shards that an index lists; `read` gives those of one file, under names of `rename`.

    Raises ConversionError where a shard is missing or lacks a tensor, or the index names a file outside its folder.
    """
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ConversionError(index, "has no weight_map: it is not the index of a sharded checkpoint")
    entries: dict[str, AnyTensor] = {}
    for shard_name in sorted({str(name) for name in weight_map.values()}):
        if (
            Path(shard_name).name != shard_name
            or shard_name == ".."
            or "\0" in shard_name
            or len(shard_name) > _LONGEST_NAME
        ):
            raise ConversionError(index, f"names a shard outside its folder: {shard_name[:80]!r}")
        shard = folder / shard_name
        if not shard.is_file():
            raise ConversionError(shard, f"is missing, but {index.name} lists tensors in it: download it too")
        found = read(shard)
        wanted = {rename(name) for name, where in weight_map.items() if where == shard_name}
        if absent := sorted(wanted - found.keys()):
            raise ConversionError(shard, f"lacks tensor {absent[0]!r}, which {index.name} places there")
        entries |= {name: found[name] for name in wanted}
    return entries


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file; ConversionError where it is missing or broken."""
    try:
        value = json.loads(read_whole(path).decode("utf-8"))
    except FileNotFoundError:
        raise ConversionError(path, "is missing") from None
    except IsADirectoryError:
        raise ConversionError(path, "is a folder; a JSON file is needed") from None
    except OSError as error:
        raise ConversionError(path, f"cannot be read ({error.strerror})") from error
    except ConversionError:
        raise
    except (ValueError, RecursionError) as error:
        raise ConversionError(path, f"is not valid JSON ({error}): download it again") from error
    if not isinstance(value, dict):
        raise ConversionError(path, "holds no JSON object")
    return value


def _what_weights_instead(folder: Path) -> str:
    if found := sorted(folder.glob("tf_model*.h5")):
        return (
            f"holds {found[0].name}, a TensorFlow checkpoint, and no {SINGLE_NAME}. Save it again with "
            "transformers 4: TFAutoModelForSeq2SeqLM.from_pretrained(FOLDER).save_pretrained(OUT, "
            "safe_serialization=True)"
        )
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    return f"holds no {SINGLE_NAME} and no {INDEX_NAME}; it holds {names}"
