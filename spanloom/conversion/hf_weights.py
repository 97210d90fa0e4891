"""Weights in a Hugging Face folder: written as float32 safetensors, read back as our parameters."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from spanloom.conversion import hf_names, safetensors_file
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.hf_names import Tensor
from spanloom.model.params import T5, declare, flatten, unflatten
from spanloom.settings.model import Model

MAX_SHARD_BYTES = 5 * 10**9
_METADATA = {"format": "pt"}  # transformers refuses a file without it


def write_weights(folder: Path, model: Model, params: T5, max_shard_bytes: int = MAX_SHARD_BYTES) -> None:
    """Write model.safetensors, or shards of at most `max_shard_bytes` and their index, float32."""
    flat = flatten(params)
    shards = list(_shards(hf_names.tensors(model), max_shard_bytes))
    if len(shards) == 1:
        _write(folder / safetensors_file.SINGLE_NAME, flat, shards[0])
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write(folder / name, flat, shard)
        weight_map |= {tensor.name: name for tensor in shard}
    total = sum(_num_bytes(tensor) for shard in shards for tensor in shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / safetensors_file.INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(tensors: list[Tensor], limit: int) -> Iterator[list[Tensor]]:
    shard: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + _num_bytes(tensor) > limit:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += _num_bytes(tensor)
    yield shard


def _write(path: Path, flat: Mapping[str, np.ndarray], shard: list[Tensor]) -> None:
    save_file({tensor.name: _theirs(flat[tensor.ours], tensor) for tensor in shard}, path, metadata=_METADATA)
    path.chmod(path.parent.stat().st_mode & 0o666)  # save_file lets nobody else read


def _theirs(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    part = np.asarray(array if tensor.layer is None else array[tensor.layer], np.float32)
    return np.ascontiguousarray(part.T if tensor.transposed else part)


def _num_bytes(tensor: Tensor) -> int:
    return 4 * math.prod(tensor.shape)


def check_entries(entries: Mapping[str, WeightTensor], model: Model, folder: Path, ignored: set[str]) -> None:
    """Every tensor of the model is there in its shape, and nothing else; ConversionError names what is not."""
    wanted = {tensor.name: tensor for tensor in hf_names.tensors(model)}
    if missing := sorted(wanted.keys() - entries.keys()):
        raise ConversionError(folder, f"lacks {_some(missing)}, which its config.json calls for")
    for name, tensor in wanted.items():
        if entries[name].shape != tensor.shape:
            raise ConversionError(
                entries[name].file,
                f"{name} has shape {entries[name].shape}, but config.json calls for {tensor.shape}",
            )
    if extra := sorted(entries.keys() - wanted.keys() - ignored):
        raise ConversionError(
            entries[extra[0]].file, f"holds {_some(extra)}, which the architecture of config.json has no place for"
        )


def read_params(entries: Mapping[str, WeightTensor], model: Model) -> T5:
    """Our parameters, NumPy float32, from checked tensors. ConversionError names one that holds NaN or infinity."""
    flat = {name: np.empty(spec.shape, np.float32) for name, spec in flatten(declare(model)).items()}
    for tensor in hf_names.tensors(model):
        array = finite(entries[tensor.name].load(), tensor.name, entries[tensor.name].file)
        destination = flat[tensor.ours] if tensor.layer is None else flat[tensor.ours][tensor.layer]
        destination[...] = array.T if tensor.transposed else array
    return unflatten(model, flat)


def finite(array: np.ndarray, name: str, file: Path) -> np.ndarray:
    """The array itself. Raises ConversionError where it holds NaN or infinity, with what that comes from."""
    if count := array.size - np.count_nonzero(np.isfinite(array)):
        raise ConversionError(
            file,
            f"{name} holds {count:,} of {array.size:,} numbers that are NaN or infinite: such a model writes nothing. "
            "Its training went wrong, or it was saved in float16, which overflows: take another copy",
        )
    return array


def _some(names: list[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
