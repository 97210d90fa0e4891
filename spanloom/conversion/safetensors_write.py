"""Writing safetensors files tensor by tensor, without having all of them in memory.

Format as in `safetensors_file`: the header comes first and says where every tensor will be.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spanloom.conversion.weights import blocks

_NAMES = {"float32": "F32", "bfloat16": "BF16"}
_SIZES = {"float32": 4, "bfloat16": 2}
_ALIGNMENT = 8


@dataclass(frozen=True)
class Tensor:
    """One tensor to be written."""

    name: str
    """Its name."""
    dtype: str
    """float32 or bfloat16."""
    shape: tuple[int, ...]
    """Size of each axis."""
    read: Callable[[], np.ndarray]
    """The numbers, in that type and shape."""

    @property
    def num_bytes(self) -> int:
        """Bytes that it takes."""
        return _SIZES[self.dtype] * math.prod(self.shape)


def write_file(path: Path, tensors: Sequence[Tensor], metadata: dict[str, str], done: Callable[[int], None]) -> None:
    """Write one file; `done` is called with the numbers (elements) of each tensor once it is written."""
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for tensor in tensors:
        entry = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
        header[tensor.name] = entry | {"data_offsets": [at, at + tensor.num_bytes]}
        at += tensor.num_bytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors:
            for block in blocks(tensor.read()):
                file.write(block.view(np.uint8))  # type: ignore[arg-type]  # its memory, as bytes
            done(math.prod(tensor.shape))
