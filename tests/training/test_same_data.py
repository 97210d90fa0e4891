"""Data that change under a run, with the real loop."""

import dataclasses
import io
import json
import shutil

import jax
import pytest
from tiny_training import MODEL, losses, tiny_run, write_text, write_vocabulary

from spanloom.settings.run import Checkpoints, Evaluation, Logging
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training import loop
from spanloom.training.checkpoint_paths import CheckpointError, latest
from spanloom.training.facts import read_facts
from spanloom.training.progress import PlainDisplay
from spanloom.training.same_data import ChangedDataError


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


def run_of(text, steps, vocabulary=None, heldout=None):
    often = {"checkpoint": Checkpoints(every=2), "eval": Evaluation(every=2, max_batches=1)}
    run = tiny_run(text, steps, model=dataclasses.replace(MODEL, dropout=0.0), log=Logging(1, False), **often)
    task = run.task
    if vocabulary is not None:
        task = dataclasses.replace(task, vocabulary=SentencePiece(str(vocabulary)))
    if heldout is not None:
        task = dataclasses.replace(task, source=dataclasses.replace(task.source, heldout_files=(str(heldout),)))
    return dataclasses.replace(run, task=task)


def train(run, directory, accepted=()):
    stream = io.StringIO()
    assert loop.train(run, directory, display=PlainDisplay(stream), accepted=accepted)
    return stream.getvalue()


def files_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_rewritten_text_is_refused_with_the_ways_on_and_may_be_accepted(tmp_path):
    text, directory = write_text(tmp_path / "lines.txt"), tmp_path / "run"
    old = text.read_bytes()
    train(run_of(text, 2), directory)
    write_text(text, seed=1)
    before, stores = losses(directory), files_of(directory / "stores")
    with pytest.raises(ChangedDataError) as error:
        train(run_of(text, 4), directory)
    message = str(error.value)
    assert f"{directory / 'checkpoints' / '2'} was trained on" in message
    assert "the training text and the held-out text changed" in message
    assert "--accept-change task.source" in message
    assert "--fork NEW_DIR" in message
    assert losses(directory) == before
    assert files_of(directory / "stores") == stores
    assert latest(directory).name == "2"

    again = shutil.copytree(directory, tmp_path / "again")
    text.write_bytes(old)  # put back, it goes on
    assert "other data" not in train(run_of(text, 4), directory)
    shutil.rmtree(directory / "stores")  # nothing is left to compare with but what the checkpoint says
    write_text(text, seed=1)
    with pytest.raises(ChangedDataError, match="the training text and the held-out text changed"):
        train(run_of(text, 6), directory)

    write_text(text, seed=1)
    for accepted in (["seed"], ["task.vocabulary"], ["task.objective"]):
        with pytest.raises(ChangedDataError):
            train(run_of(text, 4), again, accepted)
    output = train(run_of(text, 4), again, ["--task.source"])
    assert "warning: other data than that checkpoint was trained on: the training text and the held-out" in output
    assert "other data" not in train(run_of(text, 6), again)  # accepted once, it is the run's


def test_only_the_part_that_changed_is_named(tmp_path):
    text, heldout = write_text(tmp_path / "lines.txt"), write_text(tmp_path / "heldout.txt", 40, seed=2)
    train(run_of(text, 2, heldout=heldout), tmp_path / "run")
    write_text(heldout, 40, seed=3)
    with pytest.raises(ChangedDataError, match="same: the held-out text changed"):
        train(run_of(text, 4, heldout=heldout), tmp_path / "run")


def test_a_touched_file_and_accepted_settings_are_no_change(tmp_path):
    text = write_text(tmp_path / "lines.txt")
    train(run_of(text, 2), tmp_path / "run")
    text.write_bytes(text.read_bytes())
    assert "other data" not in train(run_of(text, 4), tmp_path / "run")
    other = write_text(tmp_path / "other.txt", seed=1)
    output = train(run_of(other, 6), tmp_path / "run")
    assert "changed since that checkpoint: task.source.files" in output
    assert "the training text and the held-out text changed; accepted, so the run learns from these" in output
    moved = text.parent / "moved.txt"
    moved.write_bytes(other.read_bytes())
    output = train(run_of(moved, 8), tmp_path / "run")
    assert "changed since that checkpoint: task.source.files" in output
    assert "the text and its tokens are the very same as before" in output
    assert "other data" not in output


def test_a_replaced_vocabulary_is_refused_before_stores_are_built_and_may_be_accepted(tmp_path):
    text, model = write_text(tmp_path / "lines.txt"), write_vocabulary(tmp_path / "my.model")
    directory = tmp_path / "run"
    train(run_of(text, 2, model), directory)
    stores = files_of(directory / "stores")
    for replace in (lambda: write_vocabulary(model, 30), lambda: model.write_bytes(b"no model")):
        replace()
        with pytest.raises(ChangedDataError, match=r"the vocabulary changed.*--accept-change task.vocabulary"):
            train(run_of(text, 4, model), directory, ["task.source"])
        assert files_of(directory / "stores") == stores
    write_vocabulary(model, 30)
    output = train(run_of(text, 4, model), directory, ["task.vocabulary"])
    assert "warning: other data than that checkpoint was trained on: the vocabulary changed" in output
    kept = directory / "checkpoints" / "4" / "vocabulary" / "spiece.model"
    assert kept.read_bytes() == model.read_bytes()


def test_a_checkpoint_needs_no_vocabulary_but_its_own(tmp_path):
    text, model = write_text(tmp_path / "lines.txt"), write_vocabulary(tmp_path / "my.model")
    train(run_of(text, 4, model), tmp_path / "straight")
    train(run_of(text, 2, model), tmp_path / "run")
    stores = {p: p.stat().st_mtime_ns for p in (tmp_path / "run" / "stores").rglob("*") if p.is_file()}
    model.unlink()
    assert "other data" not in train(run_of(text, 4, model), tmp_path / "run")
    assert losses(tmp_path / "run") == losses(tmp_path / "straight")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run" / "stores").rglob("*") if p.is_file()} == stores


@pytest.mark.parametrize("content", [b"cut", None])
def test_a_damaged_vocabulary_in_the_checkpoint_is_damage_and_no_change(tmp_path, content):
    text, model = write_text(tmp_path / "lines.txt"), write_vocabulary(tmp_path / "my.model")
    train(run_of(text, 2, model), tmp_path / "run")
    inside = tmp_path / "run" / "checkpoints" / "2" / "vocabulary" / "spiece.model"
    if content is None:
        write_vocabulary(inside, 30)
    else:
        inside.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"is damaged: .*spiece\.model"):
        train(run_of(text, 4, model), tmp_path / "run")


def test_a_checkpoint_that_does_not_know_its_data_goes_on(tmp_path):
    text = write_text(tmp_path / "lines.txt")
    train(run_of(text, 2), tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "2"
    whole = json.loads((path / "checkpoint.json").read_text())
    assert set(whole.pop("content")) == {"train", "heldout", "vocabulary"}
    (path / "checkpoint.json").write_text(json.dumps(whole))
    assert read_facts(path).content == {}
