"""Hugging Face's Flax checkpoints (flax_model.msgpack): PyTorch's tensors under other names, matrices (in, out)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.errors import ConversionError
from spanloom.conversion.msgpack_file import read_tree
from spanloom.conversion.stored import Stored

_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class FlaxTensor:
    """One tensor, as PyTorch has it."""

    stored: Stored
    """Flax's array."""
    transposed: bool
    """Whether the two axes are swapped."""

    @property
    def file(self) -> Path:
        """The file that it is in."""
        return self.stored.file

    @property
    def dtype(self) -> str:
        """Its type by safetensors' name."""
        return _TYPES[self.stored.dtype]

    @property
    def shape(self) -> tuple[int, ...]:
        """PyTorch's shape."""
        return self.stored.shape[::-1] if self.transposed else self.stored.shape

    def look(self) -> np.ndarray:
        """The tensor in the type it is stored in."""
        return self._turned((self.stored.look or self.stored.read)())

    def load(self) -> np.ndarray:
        """The tensor as float32."""
        return self._turned(self.stored.read()).astype(np.float32)

    def load_rows(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 of a matrix as float32."""
        return self.look()[first:last].astype(np.float32)

    def _turned(self, array: np.ndarray) -> np.ndarray:
        return array.T if self.transposed else array


def read_header(path: Path) -> dict[str, FlaxTensor]:
    """Tensors of one file by PyTorch's name. ConversionError, naming the file, where it is damaged or holds others."""
    tree = read_tree(path)
    if tree.keys() == {"params"} and isinstance(tree["params"], dict):
        tree = tree["params"]
    return dict(_tensors(tree, (), path))


def pytorch_name(flax: str) -> str:
    """PyTorch's name of a tensor of Flax ("encoder/block/0/layer/0/SelfAttention/q/kernel")."""
    parents, _, last = flax.replace("/", ".").removeprefix("params.").rpartition(".")
    return f"{parents}.weight" if last in ("kernel", "embedding", "weight") else f"{parents}.{last}"


def _tensors(tree: Mapping[str, Any], above: tuple[str, ...], path: Path) -> Iterator[tuple[str, FlaxTensor]]:
    for key, leaf in tree.items():
        name = "/".join((*above, key))
        if isinstance(leaf, dict):
            yield from _tensors(leaf, (*above, key), path)
        elif isinstance(leaf, Stored) and leaf.dtype in _TYPES:
            yield pytorch_name(name), FlaxTensor(leaf, transposed=key == "kernel" and len(leaf.shape) == 2)
        else:
            kind = leaf.dtype if isinstance(leaf, Stored) else type(leaf).__name__
            raise ConversionError(path, f"{name} is {kind}; weights must be one of {', '.join(_TYPES)}")
