"""Folders of Hugging Face whose weights are PyTorch's or Flax's: the same model as from safetensors."""

import json
import random
from pathlib import Path
from shutil import copytree

import ml_dtypes
import msgpack
import numpy as np
import pytest
from safetensors.numpy import load_file
from same_weights import different_weights
from t5x_files import extension, random_weights
from torch_files import write_old_torch, write_torch

from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.flax_file import pytorch_name
from spanloom.conversion.hf_files import open_weights
from spanloom.conversion.huggingface import Imported, import_hf
from spanloom.conversion.t5x_names import from_t5x
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import unflatten
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes

SAFE = "model.safetensors"
TINY = Model(vocab_size=384, d_model=16, d_ff=24, num_heads=2, d_kv=4, num_encoder_layers=2, num_decoder_layers=1)


def flax_tree(tensors: dict[str, np.ndarray]) -> dict:
    """The tensors as Hugging Face's Flax models have them: other names, matrices turned."""
    tree: dict = {}
    for name, array in tensors.items():
        *parents, last = name.split(".")
        if array.ndim == 2:
            looked_up = parents[-1] in ("shared", "relative_attention_bias", "embed_tokens")
            last, array = ("embedding", array) if looked_up else ("kernel", array.T)
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = extension(array)
    return tree


def write_flax(path: Path, tensors: dict[str, np.ndarray]) -> None:
    path.write_bytes(msgpack.packb(flax_tree(tensors)))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A function that copies an exported folder without its weights: the folder, its tensors and the model."""
    folder = tmp_path_factory.mktemp("hf") / "model"
    weights = from_t5x(random_weights(TINY))
    convert_to_hf(TrainedModel(TINY, unflatten(TINY, weights), Bytes(), Lineage(origin="runs/a")), folder)
    model, tensors = import_hf(folder), load_file(folder / SAFE)

    def copy(to: Path) -> tuple[Path, dict[str, np.ndarray], Imported]:
        copytree(folder, to)
        (to / SAFE).unlink()
        return to, dict(tensors), model

    return copy


WRITERS = {
    "pytorch_model.bin": write_torch,
    "pytorch_model.bin (before 1.6)": write_old_torch,
    "flax_model.msgpack": write_flax,
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("shards", [1, 3])
def test_the_same_model_in_each_format(exported, tmp_path, name, shards):
    folder, tensors, wanted = exported(tmp_path / "hf")
    file, write = name.split(" ")[0], WRITERS[name]
    if shards == 1:
        write(folder / file, tensors)
    else:
        stem, suffix = file.split(".")
        weight_map = {}
        for number in range(shards):
            part = {one: tensors[one] for one in sorted(tensors)[number::shards]}
            place = f"{stem}-{number + 1:05d}-of-{shards:05d}.{suffix}"
            write(folder / place, part)
            flax = {one.replace(".", "/"): place for one in part}
            weight_map |= flax if suffix == "msgpack" else dict.fromkeys(part, place)
        if suffix == "msgpack":
            weight_map = {_flax_name(one, tensors): place for one, place in weight_map.items()}
        (folder / f"{file}.index.json").write_text(json.dumps({"weight_map": weight_map}))
    found = import_hf(folder)
    assert (found.model, found.vocabulary) == (wanted.model, wanted.vocabulary)
    assert not different_weights(found.params, wanted.params)


def _flax_name(name: str, tensors: dict[str, np.ndarray]) -> str:
    parents = name.rpartition("/")[0]
    if tensors[name.replace("/", ".")].ndim == 1:
        return name
    return f"{parents}/{'embedding' if parents.endswith(('shared', 'relative_attention_bias')) else 'kernel'}"


def test_safetensors_come_first(exported, tmp_path):
    folder, tensors, _ = exported(tmp_path / "hf")
    (folder / "pytorch_model.bin").write_bytes(b"no checkpoint")
    with pytest.raises(ConversionError, match=r"pytorch_model\.bin: is not a whole checkpoint of PyTorch"):
        import_hf(folder)
    from safetensors.numpy import save_file

    save_file(tensors, folder / SAFE)
    assert open_weights(folder).keys() == tensors.keys()


def test_tensors_of_flax_in_bfloat16_and_below_params(tmp_path):
    array = np.random.default_rng(0).random((3, 5)).astype(ml_dtypes.bfloat16)
    tree = {"params": {"lm_head": {"kernel": extension(array)}}}
    (tmp_path / "flax_model.msgpack").write_bytes(msgpack.packb(tree))
    found = open_weights(tmp_path)["lm_head.weight"]
    assert (found.shape, found.dtype) == ((5, 3), "BF16")
    np.testing.assert_array_equal(found.load(), array.T.astype(np.float32))
    np.testing.assert_array_equal(found.load_rows(1, 4), array.T[1:4].astype(np.float32))
    assert pytorch_name("encoder/block/0/layer/0/layer_norm/weight") == "encoder.block.0.layer.0.layer_norm.weight"


@pytest.mark.parametrize("leaf", [3, "text", None, extension(np.zeros(3, np.int32))])
def test_what_is_no_weight_is_named(tmp_path, leaf):
    (tmp_path / "flax_model.msgpack").write_bytes(msgpack.packb({"a": {"b": leaf}}))
    with pytest.raises(ConversionError, match=r"a/b is [^;]*; weights must be one of"):
        open_weights(tmp_path)


def test_shards_stay_in_their_folder(tmp_path):
    for index in ("pytorch_model.bin.index.json", "flax_model.msgpack.index.json"):
        folder = tmp_path / index.split(".")[0]
        folder.mkdir()
        (folder / index).write_text(json.dumps({"weight_map": {"a": "../elsewhere"}}))
        with pytest.raises(ConversionError, match="outside its folder"):
            open_weights(folder)


def test_damaged_files_are_errors_or_tensors_of_their_size(tmp_path):
    tensors = {"shared.weight": np.ones((4, 3), np.float32), "lm_head.weight": np.ones((4, 3), np.float32)}
    path, draw = tmp_path / "flax_model.msgpack", random.Random(0)
    write_flax(path, tensors)
    whole = path.read_bytes()
    for _ in range(150):
        content = bytearray(whole)
        content[draw.randrange(len(whole))] = draw.randrange(256)
        path.write_bytes(content)
        try:
            found = open_weights(tmp_path)
        except ConversionError:
            continue
        for one in found.values():
            assert one.load().shape == one.shape
