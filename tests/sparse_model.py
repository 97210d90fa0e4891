"""A Hugging Face folder of any size that takes no room on disk: its weights are a hole in a file, all zeros."""

import json
import math
import sys
from pathlib import Path

from spanloom.conversion import hf_config, hf_names
from spanloom.settings.model import Model

SIZES = {"float32": ("F32", 4), "bfloat16": ("BF16", 2)}


def write_sparse(folder: Path, model: Model, dtype: str = "float32") -> int:
    """Bytes of the weights, of which the disk keeps none."""
    folder.mkdir(parents=True)
    kind, width = SIZES[dtype]
    header, at = {}, 0
    for tensor in hf_names.tensors(model):
        end = at + width * math.prod(tensor.shape)
        header[tensor.name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(json.dumps(hf_config.to_config(model, "ByT5Tokenizer", 1)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}))
    return at


def wide(layers: int, d_model: int, d_ff: int) -> Model:
    """A byte model of so many layers in each stack."""
    return Model(384, d_model, d_ff, 8, d_model // 8, num_encoder_layers=layers, num_decoder_layers=layers)


if __name__ == "__main__":
    print(write_sparse(Path(sys.argv[1]), wide(*map(int, sys.argv[2:5]))))
