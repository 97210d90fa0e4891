"""The weights of a Hugging Face folder, whichever of its formats they are in: safetensors, PyTorch's, or Flax's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from spanloom.conversion import flax_file, safetensors_file, torch_file


class WeightTensor(Protocol):
    """One tensor under PyTorch's name and in its shape, of which nothing has been read."""

    @property
    def file(self) -> Path:
        """The file that it is in."""

    @property
    def dtype(self) -> str:
        """Its type by safetensors' name: F32, BF16, ..."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""

    def look(self) -> np.ndarray:
        """The tensor in the type it is stored in; of a file's view only that is read which is used."""

    def load(self) -> np.ndarray:
        """The tensor as float32."""

    def load_rows(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1 of a matrix as float32."""


Reader = Callable[[Path], Mapping[str, WeightTensor]]
_OTHERS: tuple[tuple[str, str, Reader], ...] = (
    ("pytorch_model.bin", "pytorch_model.bin.index.json", torch_file.read_header),
    ("flax_model.msgpack", "flax_model.msgpack.index.json", flax_file.read_header),
)


def open_weights(folder: Path) -> dict[str, WeightTensor]:
    """Tensors of a folder by PyTorch's name, from one file or from the shards of an index; safetensors if it has them.

    Raises ConversionError, naming the file, where one is missing, damaged or holds more than tensors.
    """
    names = (safetensors_file.SINGLE_NAME, safetensors_file.INDEX_NAME)
    if not any((folder / name).is_file() for name in names):
        for single, index, read in _OTHERS:
            if (folder / single).is_file():
                return dict(read(folder / single))
            if (folder / index).is_file():
                name = flax_file.pytorch_name if read is flax_file.read_header else str
                return safetensors_file.open_shards(folder, folder / index, read, name)
    return dict(safetensors_file.open_folder(folder))
