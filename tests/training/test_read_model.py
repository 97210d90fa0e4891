import pytest

from spanloom.conversion.errors import ConversionError
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.read_model import read_model


def test_there_must_be_something_to_choose_from(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"--which best: .* is a Hugging Face folder"):
        read_model(tmp_path / "hf", "best")
    place = tmp_path / "run" / "checkpoints" / "3"
    place.mkdir(parents=True)
    (place / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"--which 3: .* is a Spanloom checkpoint"):
        read_model(place, "3")


def test_what_is_nothing_is_said(tmp_path):
    with pytest.raises(ConversionError, match="does not exist"):
        read_model(tmp_path / "absent")
