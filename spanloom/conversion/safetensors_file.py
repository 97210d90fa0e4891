"""Reading safetensors files without trusting them: every size is checked before an array is handed out.

Format: 8 bytes little-endian length of a JSON header, the header, then the tensors' bytes one after another
(https://github.com/huggingface/safetensors). Arrays are memory-mapped; nothing is read before it is used.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.conversion.errors import ConversionError

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


def open_folder(folder: Path) -> dict[str, Entry]:
    """Tensors of a Hugging Face folder by name, from one file or from the shards of its index.

    Raises ConversionError where a file is missing, cut short, or says other than its index.
    """
    single, index = folder / SINGLE_NAME, folder / INDEX_NAME
    if single.is_file():
        return read_header(single)
    if index.is_file():
        return _open_shards(folder, index)
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
    count = math.prod(entry.shape)
    if count == 0:
        return np.zeros(entry.shape, np.float32)
    stored = np.memmap(entry.file, dtype=_STORED_AS[entry.dtype], mode="r", offset=entry.begin, shape=(count,))
    return _as_float32(stored, entry.dtype).reshape(entry.shape)


def load_rows(entry: Entry, first: int, last: int) -> np.ndarray:
    """Rows first..last-1 of a matrix as float32, without reading the rest."""
    width = math.prod(entry.shape[1:])
    itemsize = np.dtype(_STORED_AS[entry.dtype]).itemsize
    part = Entry(entry.file, entry.dtype, (last - first, *entry.shape[1:]), entry.begin + first * width * itemsize)
    return load(part)


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


def _open_shards(folder: Path, index: Path) -> dict[str, Entry]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ConversionError(index, "has no weight_map: it is not the index of a sharded checkpoint")
    entries: dict[str, Entry] = {}
    for shard_name in sorted({str(name) for name in weight_map.values()}):
        if Path(shard_name).name != shard_name:
            raise ConversionError(index, f"names a shard outside its folder: {shard_name!r}")
        shard = folder / shard_name
        if not shard.is_file():
            raise ConversionError(shard, f"is missing, but {INDEX_NAME} lists tensors in it: download it too")
        found = read_header(shard)
        wanted = {name for name, where in weight_map.items() if where == shard_name}
        if absent := sorted(wanted - found.keys()):
            raise ConversionError(shard, f"lacks tensor {absent[0]!r}, which {INDEX_NAME} places there")
        entries |= {name: found[name] for name in wanted}
    return entries


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file; ConversionError where it is missing or broken."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConversionError(path, "is missing") from None
    except IsADirectoryError:
        raise ConversionError(path, "is a folder; a JSON file is needed") from None
    except (ValueError, RecursionError) as error:
        raise ConversionError(path, f"is not valid JSON ({error}): download it again") from error
    if not isinstance(value, dict):
        raise ConversionError(path, "holds no JSON object")
    return value


def _what_weights_instead(folder: Path) -> str:
    for pattern, kind in (
        ("pytorch_model*.bin*", "a pickled PyTorch checkpoint"),
        ("flax_model*.msgpack*", "a Flax checkpoint"),
        ("tf_model*.h5", "a TensorFlow checkpoint"),
    ):
        if found := sorted(folder.glob(pattern)):
            return (
                f"holds {found[0].name}, {kind}, and no {SINGLE_NAME}. Save it again with "
                "transformers: AutoModelForSeq2SeqLM.from_pretrained(FOLDER).save_pretrained(OUT)"
            )
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    return f"holds no {SINGLE_NAME} and no {INDEX_NAME}; it holds {names}"
