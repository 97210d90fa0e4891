"""Weights in a Hugging Face folder: written as safetensors, read back as our parameters, tensor by tensor."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from spanloom.conversion import hf_names, safetensors_file
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.hf_files import WeightTensor
from spanloom.conversion.safetensors_write import Tensor, write_file
from spanloom.conversion.weights import Dtype, Weight, Weights, checked, written_type
from spanloom.model.params import declare, flatten
from spanloom.settings.model import Model

MAX_SHARD_BYTES = 5 * 10**9
_METADATA = {"format": "pt"}  # transformers refuses a file without it
_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def write_weights(
    folder: Path,
    model: Model,
    weights: Weights,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    dtype: Dtype = "float32",
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Write model.safetensors, or shards of at most `max_shard_bytes` and their index.

    One tensor is in memory at a time. `done` is told how many numbers were written. Raises ConversionError, naming the
    tensor, where the source holds NaN or infinity.
    """
    tensors = [_tensor(weights[tensor.ours], tensor, dtype) for tensor in hf_names.tensors(model)]
    shards = list(_shards(tensors, max_shard_bytes))
    if len(shards) == 1:
        _write(folder / safetensors_file.SINGLE_NAME, shards[0], done)
        return
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        _write(folder / name, shard, done)
        weight_map |= {tensor.name: name for tensor in shard}
    total = sum(tensor.num_bytes for tensor in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / safetensors_file.INDEX_NAME).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _tensor(weight: Weight, tensor: hf_names.Tensor, dtype: Dtype) -> Tensor:
    def read() -> np.ndarray:
        array = checked(weight, tensor.layer, dtype)
        return array.T if tensor.transposed else array

    return Tensor(tensor.name, written_type(weight.dtype, dtype), tensor.shape, read)


def _shards(tensors: list[Tensor], limit: int) -> Iterator[list[Tensor]]:
    shard: list[Tensor] = []
    size = 0
    for tensor in tensors:
        if shard and size + tensor.num_bytes > limit:
            yield shard
            shard, size = [], 0
        shard.append(tensor)
        size += tensor.num_bytes
    yield shard


def _write(path: Path, shard: list[Tensor], done: Callable[[int], None]) -> None:
    write_file(path, shard, _METADATA, done)


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


def weights_of(entries: Mapping[str, WeightTensor], model: Model) -> dict[str, Weight]:
    """Checked tensors as our weights, none of which has been read."""
    theirs: dict[str, list[hf_names.Tensor]] = {}
    for tensor in hf_names.tensors(model):
        theirs.setdefault(tensor.ours, []).append(tensor)
    shapes = {name: spec.shape for name, spec in flatten(declare(model)).items()}
    return {name: _weight(shapes[name], entries, tensors) for name, tensors in theirs.items()}


def _weight(shape: tuple[int, ...], entries: Mapping[str, WeightTensor], tensors: list[hf_names.Tensor]) -> Weight:
    stacked = tensors[0].layer is not None

    def read(layer: int | None) -> np.ndarray:
        tensor = tensors[layer or 0]
        array = entries[tensor.name].look()
        return array.T if tensor.transposed else array

    def place(layer: int | None) -> tuple[str, Path]:
        name = tensors[layer or 0].name
        return name, entries[name].file

    # a stack that is bfloat16 in some layers only is not: widening loses nothing, but rounding is to be said
    kinds = {_TYPES[entries[tensor.name].dtype] for tensor in tensors}
    kind = kinds.pop() if len(kinds) == 1 else "float64" if "float64" in kinds else "float32"
    return Weight(shape, len(tensors) if stacked else None, kind, read, place)


def _some(names: list[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
