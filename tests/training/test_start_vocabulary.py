import dataclasses
import shutil

import jax
import numpy as np
import pytest
from tiny_training import tiny_run, train, write_text, write_vocabulary

from spanloom.conversion.surgery import EMBEDDING
from spanloom.model.params import declare, flatten, initialize
from spanloom.optim.build import build as build_optimizer
from spanloom.settings.follow import Follow
from spanloom.settings.run import Checkpoints
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.checkpoint_paths import CheckpointError, latest
from spanloom.training.checkpoints import CheckpointWriter, restore
from spanloom.training.facts import Facts, read_facts
from spanloom.training.inspected import inspect
from spanloom.training.start import StartError, find_start, load_start
from spanloom.training.state import fresh_state
from spanloom.vocabularies.build import build

MOVE = Follow(vocabulary="by_piece")


def with_words(run, vocabulary, rows):
    task = dataclasses.replace(run.task, vocabulary=vocabulary)
    return dataclasses.replace(run, task=task, model=dataclasses.replace(run.model, vocab_size=rows))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of pieces with a checkpoint of random weights, and a vocabulary that is another."""
    folder = tmp_path_factory.mktemp("trained")
    words = SentencePiece(str(write_vocabulary(folder / "old.model", 40)), extra_ids=20)
    run = with_words(tiny_run(write_text(folder / "text.txt"), 3), words, 128).resolve()
    params = initialize(declare(run.model), jax.random.key(3))
    vocabulary = build(words)
    writer = CheckpointWriter(folder / "run" / "checkpoints", Checkpoints(), vocabulary.files())
    optimizer = build_optimizer(run.optimizer, run.schedule, declare(run.model))
    content = {"vocabulary": vocabulary.fingerprint()}
    writer.save(fresh_state(params, optimizer), Facts(5, {"examples": 20}, run, {"spanloom": "0"}, content=content))
    writer.close()
    other = SentencePiece(str(write_vocabulary(folder / "new.model", 30)), extra_ids=20)
    return folder, run, params, other


def following(trained, vocabulary, rows=128, follow=MOVE):
    folder, run, _, _ = trained
    return dataclasses.replace(with_words(run, vocabulary, rows), start=str(folder / "run"), follow=follow)


def test_another_vocabulary_is_refused_with_what_can_be_done(trained):
    other = trained[3]
    for rows, flag in ((128, "by_piece to"), (32, "by_piece --model.vocab-size 128 to")):
        with pytest.raises(StartError, match=r"trained with another vocabulary.*ids mean something else") as error:
            find_start(following(trained, other, rows, Follow()))
        assert f"--follow.vocabulary {flag}" in str(error.value)
        assert "old.model" in str(error.value) or "vocabulary/" in str(error.value)
        assert "--follow.vocabulary by_id" in str(error.value)
    with pytest.raises(StartError, match=r"this run has .bytes, 384 ids"):
        find_start(following(trained, Bytes(), 384, Follow()))


def test_rows_move_by_piece(trained):
    _, run, params, other = trained
    start = load_start(wanted := following(trained, other, 256), found := find_start(wanted))
    assert found.moved.counts()["copied"] > 30
    assert "copied by piece" in start.description and "optimizer fresh" in start.description
    assert start.warnings == ()
    before, after = (np.asarray(flatten(tree)[EMBEDDING]) for tree in (params, start.params))
    assert after.shape == (256, 16)
    old, new = build(run.vocabulary), build(other)
    for number in range(20):
        assert np.array_equal(after[new.sentinels[number]], before[old.sentinels[number]])
    for name, leaf in flatten(params).items():
        if "embed" not in name.split("/")[0] and "logits" not in name:
            assert np.array_equal(flatten(start.params)[name], leaf)


def test_the_same_vocabulary_has_nothing_to_move(trained, tmp_path):
    folder, _, params, _ = trained
    shutil.copy(folder / "old.model", tmp_path / "copy.model")
    same = following(trained, SentencePiece(str(tmp_path / "copy.model"), extra_ids=20))
    for policy in (MOVE, Follow()):
        found = find_start(wanted := dataclasses.replace(same, follow=policy))
        assert found.moved is None
        start = load_start(wanted, found)
        assert all(np.array_equal(flatten(start.params)[name], leaf) for name, leaf in flatten(params).items())


def test_rows_stay_where_they_are_if_that_is_asked_for(trained):
    wanted = following(trained, trained[3], 128, Follow(vocabulary="by_id"))
    start = load_start(wanted, find_start(wanted))
    assert np.array_equal(flatten(start.params)[EMBEDDING], flatten(trained[2])[EMBEDDING])
    assert any("another SentencePiece model" in warning for warning in start.warnings)


@pytest.mark.parametrize(
    ("rows", "follow", "words"),
    [
        (32, MOVE, "has 50 ids and model.vocab_size is 32: give --model.vocab-size 128"),
        (128, dataclasses.replace(MOVE, optimizer="continue"), "give --follow.optimizer reset"),
        (128, dataclasses.replace(MOVE, new_rows="bytes"), "has no pieces of bytes"),
    ],
)
def test_what_cannot_move_is_named(trained, rows, follow, words):
    with pytest.raises(ValueError, match=words):
        find_start(following(trained, trained[3], rows, follow))


def test_a_vocabulary_file_that_was_exchanged_is_found_out(trained, tmp_path):
    folder, run, _, other = trained
    shutil.copytree(folder / "run", tmp_path / "run")
    (inside,) = (tmp_path / "run" / "checkpoints" / "5" / "vocabulary").iterdir()
    shutil.copy(other.path, inside)
    wanted = dataclasses.replace(run, start=str(tmp_path / "run"))
    with pytest.raises(CheckpointError, match="is not the vocabulary that was written"):
        find_start(wanted)


def test_a_run_says_and_keeps_how_its_rows_began(trained, tmp_path):
    wanted = dataclasses.replace(following(trained, trained[3], 128), steps=2, checkpoint=Checkpoints(every=1))
    said = train(wanted, tmp_path / "next")
    assert "copied by piece" in said
    facts = read_facts(latest(tmp_path / "next"))
    assert facts.moved_rows["ids"] == 50 and facts.moved_rows["copied"] > 30
    assert read_facts(tmp_path / "next" / "checkpoints" / "1").moved_rows == facts.moved_rows
    rows = dict(inspect(tmp_path / "next").rows)
    assert "copied" in rows["rows at its start"]
    assert restore(latest(tmp_path / "next")).params.token_embedder.embedding.shape == (128, 16)
