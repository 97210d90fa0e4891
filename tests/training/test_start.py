import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import same_arrays, tiny_run

from spanloom.model.params import declare, initialize
from spanloom.optim.build import build
from spanloom.settings.run import Checkpoints
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.checkpoints import CheckpointWriter, Facts
from spanloom.training.start import StartError, load_start, vocabulary_warnings
from spanloom.training.state import fresh_state


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory with a checkpoint, its run and its weights."""
    directory = tmp_path_factory.mktemp("trained")
    run = tiny_run(directory / "text.txt", 100).resolve()
    specs = declare(run.model)
    params = initialize(specs, jax.random.key(3))
    writer = CheckpointWriter(directory / "checkpoints", Checkpoints(), {})
    writer.save(
        fresh_state(params, build(run.optimizer, run.schedule, specs)),
        Facts(5, {"examples": 20}, run, {"spanloom": "0"}),
    )
    writer.close()
    return directory, run, params


def starting(run, path, **model):
    return dataclasses.replace(run, start=str(path), model=dataclasses.replace(run.model, **model))


@pytest.mark.parametrize("inner", [".", "checkpoints/5"])
def test_a_spanloom_checkpoint(trained, inner):
    directory, run, params = trained
    start = load_start(starting(run, directory / inner, dropout=0.3, dtype="bfloat16", scan_layers=False))
    assert same_arrays(start.params, params)
    assert "step 5" in start.description
    assert start.warnings == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": 512}, "embedding in .* has 384 rows, the model of this run 512.*--model.vocab-size 384"),
        ({"d_ff": 40}, r"encoder/layers/mlp/wi_0/kernel is \(2, 16, 32\) there, \(2, 16, 40\) here"),
        ({"num_decoder_layers": 3}, r"decoder/layers/.* is \(2, .*, \(3, "),
        ({"tie_embeddings": True}, "does not share the embedding; set --model.tie-embeddings False"),
        ({"activations": ("relu", "linear")}, "trained with activations = .*the weights would mean something else"),
        ({"relative_position_max_distance": 64}, "relative_position_max_distance = 128, this run has 64"),
    ],
)
def test_a_model_that_does_not_fit_is_named(trained, change, words):
    directory, run, _ = trained
    with pytest.raises(StartError, match=words):
        load_start(starting(run, directory, **change))


def test_nothing_there(trained, tmp_path):
    _, run, _ = trained
    with pytest.raises(StartError, match="does not exist"):
        load_start(starting(run, tmp_path / "absent"))
    with pytest.raises(StartError, match="neither a Spanloom run"):
        load_start(starting(run, tmp_path))


def test_a_damaged_checkpoint_is_an_error(trained, tmp_path):
    import shutil

    directory, run, _ = trained
    copy = shutil.copytree(directory / "checkpoints" / "5", tmp_path / "5")
    (copy / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=re.escape(f"{copy / 'manifest.json'} is missing")):
        load_start(starting(run, copy))


def test_a_hugging_face_folder(trained, tmp_path):
    from spanloom.conversion.huggingface import Imported

    _, run, params = trained
    found = Imported(run.model, jax.tree.map(np.asarray, params), Bytes(sentinels="google"), ("a note",))
    (tmp_path / "config.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.conversion.huggingface.import_hf", lambda path: found)
        start = load_start(starting(run, tmp_path))
    assert same_arrays(start.params, params)
    assert all(isinstance(leaf, jnp.ndarray) for leaf in jax.tree.leaves(start.params))
    assert start.warnings[0] == "a note"
    assert "--task.vocabulary.sentinels google" in start.warnings[1]


@pytest.mark.short
def test_vocabularies_that_differ_are_said(tmp_path):
    first, second = tmp_path / "a.model", tmp_path / "b.model"
    first.write_bytes(b"1")
    second.write_bytes(b"1")
    assert vocabulary_warnings(tmp_path, SentencePiece(str(first)), SentencePiece(str(second))) == []
    second.write_bytes(b"2")
    assert (
        "another SentencePiece model"
        in vocabulary_warnings(tmp_path, SentencePiece(str(first)), SentencePiece(str(second)))[0]
    )
    assert "every id means something else" in vocabulary_warnings(tmp_path, Bytes(), SentencePiece(str(first)))[0]
    assert vocabulary_warnings(tmp_path, Bytes(extra_ids=100), Bytes()) == []
