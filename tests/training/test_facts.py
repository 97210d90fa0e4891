import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_training import tiny_run

from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.facts import Facts, read_facts, read_facts_and_arrays, to_data, vocabulary_inside

pytestmark = pytest.mark.short

RUN = tiny_run(Path("text.txt"), 100).resolve()
FACTS = Facts(10, {"examples": 40}, RUN, {"spanloom": "0"}, 2.5)
ARRAYS = {"params": {"a/b": SimpleNamespace(shape=(2, 3), dtype="float32")}, "optimizer": {}}


@pytest.fixture
def path(tmp_path):
    """A checkpoint of step 10 without its arrays."""
    path = tmp_path / "checkpoints" / "10"
    path.mkdir(parents=True)
    (path / "checkpoint.json").write_text(json.dumps(to_data(FACTS, ARRAYS)))
    return path


def test_everything_comes_back(path):
    entries = {"params": {"a/b": {"shape": [2, 3], "dtype": "float32"}}, "optimizer": {}}
    assert read_facts_and_arrays(path) == (FACTS, entries)
    (path / "heldout.json").write_text('{"heldout_loss": 1.5}')
    assert read_facts(path) == replace(FACTS, heldout_loss=1.5)
    (path / "checkpoint.json").unlink()
    with pytest.raises(CheckpointError, match=r"checkpoint\.json is missing"):
        read_facts(path)


def test_a_checkpoint_from_the_future(path):
    whole = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**whole, "format": 2}))
    with pytest.raises(CheckpointError, match=r"format 2.*reads 1"):
        read_facts(path)


@pytest.mark.parametrize("content", ["[]", "3", "null", "{}", "[" * 200_000, '{"format": 1}'])
def test_facts_of_any_content_are_met(path, content):
    (path / "checkpoint.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"is damaged: .*checkpoint\.json is not"):
        read_facts(path)


@pytest.mark.parametrize("name", ["run", "machine", "step", "position", "arrays", "content", "loss", "started_from"])
@pytest.mark.parametrize("value", [None, [], "x"])
def test_facts_that_lack_something_are_met(path, name, value):
    if (name, value) in [("loss", None), ("started_from", None), ("started_from", "x")]:
        return  # that is what they may be
    whole = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**whole, name: value}))
    with pytest.raises(CheckpointError, match=f"not what was written: {name} is missing"):
        read_facts(path)


def test_a_position_without_examples_is_met(path):
    whole = json.loads((path / "checkpoint.json").read_text())
    (path / "checkpoint.json").write_text(json.dumps({**whole, "position": {}}))
    with pytest.raises(CheckpointError, match="position has no examples"):
        read_facts(path)


def test_a_renamed_checkpoint_of_a_run_is_refused_and_a_copy_may_be_called_anything(path, tmp_path):
    path.rename(path.with_name("11"))
    with pytest.raises(CheckpointError, match=r"checkpoints/11 is damaged.*that of step 10: was the folder renamed"):
        read_facts(path.with_name("11"))
    copy = path.with_name("11").rename(tmp_path / "2024")
    assert read_facts(copy).step == 10


def test_the_vocabulary_travels_along(path):
    (path / "vocabulary").mkdir()
    (path / "vocabulary" / "spiece.model").write_bytes(b"\x00model")
    vocabulary = SentencePiece("/elsewhere/spiece.model")
    run = replace(RUN, task=replace(RUN.task, vocabulary=vocabulary))
    inside = vocabulary_inside(path, run)
    assert Path(inside.path).read_bytes() == b"\x00model"
    (path / "vocabulary" / "spiece.model").unlink()
    with pytest.raises(CheckpointError, match="must hold one SentencePiece model"):
        vocabulary_inside(path, run)
