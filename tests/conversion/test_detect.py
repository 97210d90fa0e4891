"""What a path is, and what is said of one that is nothing we read."""

import numpy as np
import pytest
from t5x_files import write_t5x

from spanloom.conversion.convert import convert_to_hf
from spanloom.conversion.detect import detect
from spanloom.conversion.errors import ConversionError


def test_our_own_and_hugging_face_are_told_apart(tmp_path, tiny, make_source):
    convert_to_hf(make_source(tiny), tmp_path / "hf")
    checkpoint = tmp_path / "run" / "checkpoints" / "100"
    checkpoint.mkdir(parents=True)
    (checkpoint / "checkpoint.json").write_text("{}")
    assert detect(tmp_path / "hf") == "huggingface"
    assert detect(tmp_path / "run") == "run"
    assert detect(str(tmp_path / "run" / "checkpoints")) == "run"
    assert detect(checkpoint) == "checkpoint"


def test_t5x_in_each_of_its_forms(tmp_path):
    whole = write_t5x(tmp_path / "checkpoint_7", {"target/a": np.zeros(3, np.float32)}, inline=lambda name: True)
    assert [detect(path) for path in (tmp_path, whole, whole / "checkpoint")] == ["t5x"] * 3
    (whole / "checkpoint").rename(tmp_path / "tiny.checkpoint_0")
    assert detect(tmp_path / "tiny.checkpoint_0") == "t5x"
    orbax = tmp_path / "checkpoint_8" / "state"
    orbax.mkdir(parents=True)
    (orbax / "_METADATA").write_text("{}")
    assert detect(orbax.parent) == "t5x"
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "model.ckpt-1000.index").write_text("")
    assert [detect(tmp_path / "mesh" / name) for name in ("", "model.ckpt-1000", "model.ckpt-1000.index")] == [
        "t5x"
    ] * 3


@pytest.mark.short
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ((), "holds nothing"),
        (("a.txt", "b.txt"), "holds a.txt, b.txt"),
        (("run.json",), "without any checkpoint yet"),
        (("checkpoint",), "a checkpoint of TensorFlow, or an empty one"),
        (("checkpoint_1000/checkpoint",), "a folder of T5X checkpoints, none"),
        (("model.safetensors",), "without the config.json"),
        (("tokenizer_config.json",), "a tokenizer without a model"),
        (("adapter_config.json",), "a PEFT adapter"),
    ],
)
def test_what_was_found_instead_is_named(tmp_path, files, message):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    with pytest.raises(ConversionError, match=message):
        detect(tmp_path)


def test_a_path_that_does_not_exist_or_is_a_file(tmp_path):
    (tmp_path / "model.safetensors").write_text("")
    with pytest.raises(ConversionError, match=r"is a file; .*its folder"):
        detect(tmp_path / "model.safetensors")
    with pytest.raises(ConversionError, match=r"does not exist.*model\.safetensors"):
        detect(tmp_path / "modle")
