import dataclasses
import json
import re
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_training import same_arrays, tiny_run, write_vocabulary

from spanloom.conversion.errors import ConversionError
from spanloom.model.params import declare, initialize
from spanloom.optim.build import build
from spanloom.settings.follow import Follow
from spanloom.settings.objectives import (
    UL2,
    FullLM,
    IidDenoising,
    PrefixLM,
    SpanCorruption,
    Supervised,
    TextInfilling,
)
from spanloom.settings.run import Checkpoints
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.checkpoints import CheckpointWriter
from spanloom.training.facts import Facts
from spanloom.training.start import StartError, find_start, load_start, vocabulary_warnings
from spanloom.training.state import fresh_state


def save(directory, run, params):
    """A run directory with a checkpoint of step 5."""
    writer = CheckpointWriter(directory / "checkpoints", Checkpoints(), {})
    writer.save(
        fresh_state(params, build(run.optimizer, run.schedule, declare(run.model))),
        Facts(5, {"examples": 20}, run, {"spanloom": "0"}),
    )
    writer.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory with a checkpoint, its run and its weights."""
    directory = tmp_path_factory.mktemp("trained")
    run = tiny_run(directory / "text.txt", 100).resolve()
    params = initialize(declare(run.model), jax.random.key(3))
    save(directory, run, params)
    return directory, run, params


def load(run):
    return load_start(run, find_start(run))


def starting(run, path, **model):
    return dataclasses.replace(run, start=str(path), model=dataclasses.replace(run.model, **model))


@pytest.mark.parametrize("inner", [".", "checkpoints/5"])
def test_a_spanloom_checkpoint(trained, inner):
    directory, run, params = trained
    start = load(starting(run, directory / inner, dropout=0.3, dtype="bfloat16", scan_layers=False))
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
        load(starting(run, directory, **change))


def test_nothing_there(trained, tmp_path):
    _, run, _ = trained
    with pytest.raises(StartError, match="does not exist"):
        load(starting(run, tmp_path / "absent"))
    with pytest.raises(
        StartError,
        match="a Spanloom checkpoint, a model converted by Spanloom, a Hugging Face folder or a checkpoint of T5X or "
        "Mesh TensorFlow is needed",
    ):
        load(starting(run, tmp_path))


def test_a_damaged_checkpoint_is_an_error(trained, tmp_path):
    import shutil

    directory, run, _ = trained
    copy = shutil.copytree(directory / "checkpoints" / "5", tmp_path / "5")
    (copy / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match=re.escape(f"{copy / 'manifest.json'} is missing")):
        load(starting(run, copy))


def test_a_hugging_face_folder(trained, tmp_path):
    from spanloom.conversion.huggingface import Imported, Opened, Settings

    _, run, params = trained
    found = Imported(run.model, jax.tree.map(np.asarray, params), Bytes(sentinels="google"), ("a note",))
    (tmp_path / "config.json").write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spanloom.conversion.huggingface.import_hf", lambda path: found)
        settings = Settings(found.model, found.vocabulary, found.notes)
        opened = Opened(settings, {}, frozenset())
        patch.setattr("spanloom.conversion.huggingface.open_hf", lambda path: opened)
        start = load(starting(run, tmp_path))
    assert same_arrays(start.params, params)
    assert all(isinstance(leaf, jnp.ndarray) for leaf in jax.tree.leaves(start.params))
    assert start.warnings[0] == "a note"
    assert "--task.vocabulary.sentinels google" in start.warnings[1]


@pytest.mark.short
def test_vocabularies_that_differ_are_said(tmp_path):
    first, second = write_vocabulary(tmp_path / "a.model"), write_vocabulary(tmp_path / "b.model")
    assert vocabulary_warnings(tmp_path, SentencePiece(str(first)), SentencePiece(str(second))) == []
    write_vocabulary(second, 30)
    assert (
        "another SentencePiece model"
        in vocabulary_warnings(tmp_path, SentencePiece(str(first)), SentencePiece(str(second)))[0]
    )
    assert "every id means something else" in vocabulary_warnings(tmp_path, Bytes(), SentencePiece(str(first)))[0]
    assert vocabulary_warnings(tmp_path, Bytes(extra_ids=100), Bytes()) == []


@pytest.mark.short
@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ({"extra_ids": 100}, {"extra_ids": 50}, "sentinels appended --task.vocabulary.extra-ids 100"),
        ({"extra_ids": 100}, {"extra_ids": 100}, None),
    ],
)
def test_one_model_with_other_sentinels_is_another_vocabulary(tmp_path, theirs, ours, words):
    """Appended sentinels count downwards from the last id: with fewer of them every one is another id."""
    model = str(write_vocabulary(tmp_path / "a.model"))
    saved, wanted = (SentencePiece(model, "appended", **changes) for changes in (theirs, ours))
    found = vocabulary_warnings(tmp_path, saved, wanted)
    if words is None:
        assert found == []
    else:
        assert words in found[0]
        assert "begin untrained" in found[0]


@pytest.mark.short
def test_the_same_sentinels_in_other_words_are_no_difference(tmp_path):
    model = str(write_vocabulary(tmp_path / "a.model"))
    assert vocabulary_warnings(tmp_path, SentencePiece(model), SentencePiece(model, "appended")) == []
    (warning,) = vocabulary_warnings(tmp_path, Bytes("seqio", 125), Bytes("seqio", 100))
    assert "383, 382, ..." in warning
    assert "358, 357, ..." in warning


def corrupting(run, length):
    return dataclasses.replace(run, task=dataclasses.replace(run.task, objective=SpanCorruption(length, 0.15, 3.0)))


def test_sentinels_that_the_start_never_trained_are_said(trained):
    """The start's run masks 2 spans in an example of 32 tokens."""
    directory, run, _ = trained
    assert load(corrupting(starting(run, directory), 24)).warnings == ()
    (warning,) = load(corrupting(starting(run, directory), 128)).warnings
    assert "this run masks 7 spans in an example" in warning
    assert "masked 2" in warning
    assert "<extra_id_2> to <extra_id_6> begin untrained" in warning
    pairs = Task("pairs", PairFiles(("pairs.tsv",)), objective=Supervised())
    assert load(dataclasses.replace(starting(run, directory), task=pairs)).warnings == ()


def test_what_other_objectives_use_of_sentinels_is_known(trained):
    """The start's run masks 2 spans in an example of 32 tokens."""
    directory, run, _ = trained

    def warnings(objective):
        task = dataclasses.replace(run.task, objective=objective)
        return load(dataclasses.replace(starting(run, directory), task=task)).warnings

    assert warnings(PrefixLM(64)) == warnings(FullLM()) == warnings(TextInfilling(64)) == ()
    for objective in (SpanCorruption(32, random_roll=True), IidDenoising(64), UL2(64)):
        (warning,) = warnings(objective)
        assert "<extra_id_2> to <extra_id_" in warning and "begin untrained" in warning


@pytest.mark.parametrize("began", [None, "elsewhere/run"])
def test_a_start_that_learnt_pairs_trained_no_sentinel(trained, tmp_path, began):
    _, run, params = trained
    pairs = Task("pairs", PairFiles(("pairs.tsv",)), objective=Supervised())
    finetuned = dataclasses.replace(run, task=pairs, start=began).resolve()
    save(tmp_path, finetuned, params)
    (warning,) = load(starting(run, tmp_path)).warnings
    assert "learnt 'pairs', which has no sentinels, so it trained none" in warning
    assert ("in elsewhere/run" if began else "random") in warning


def test_an_export_knows_the_sentinels_of_its_run(trained, tmp_path):
    from spanloom.conversion.convert import convert_to_hf
    from spanloom.training.read_model import read_model

    directory, run, _ = trained
    convert_to_hf(read_model(directory), tmp_path / "hf")
    assert load(starting(run, tmp_path / "hf")).warnings == ()
    (warning,) = load(corrupting(starting(run, tmp_path / "hf"), 128)).warnings
    assert "<extra_id_2> to <extra_id_6> begin untrained" in warning


def test_looking_at_a_start_reads_no_weights(trained, monkeypatch):
    directory, run, _ = trained
    monkeypatch.setattr("spanloom.training.start.restore", lambda path: pytest.fail("weights were read"))
    assert find_start(starting(run, directory)).path == directory / "checkpoints" / "5"
    with pytest.raises(StartError, match="mlp"):
        find_start(starting(run, directory, d_ff=40))


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """The trained model by what it was written as."""
    from spanloom.conversion.convert import HUGGING_FACE, convert
    from spanloom.training.converted import SPANLOOM
    from spanloom.training.read_model import read_model

    folder = tmp_path_factory.mktemp("exported")
    for name, form in (("hf", HUGGING_FACE), ("converted", SPANLOOM)):
        convert(read_model(trained[0]), folder / name, form)
    return folder


def test_shapes_that_contradict_the_settings_are_refused_before_any_text_is_read(trained, exported, tmp_path):
    _, run, _ = trained
    folder = tmp_path / "hf"
    shutil.copytree(exported / "hf", folder)
    config = json.loads((folder / "config.json").read_text())
    for field, name in (("num_heads", "num_heads"), ("d_kv", "d_kv"), ("d_ff", "d_ff"), ("d_model", "d_model")):
        wrong = getattr(run.model, field) + 2
        (folder / "config.json").write_text(json.dumps(config | {name: wrong}))
        with pytest.raises(ConversionError, match="has shape"):
            find_start(starting(run, folder, **{field: wrong}))


@pytest.mark.parametrize("kind", ["hf", "converted", "checkpoint"])
def test_the_best_of_what_is_one_model_is_refused(trained, exported, kind):
    directory, run, _ = trained
    path = directory / "checkpoints" / "5" if kind == "checkpoint" else exported / kind
    for which in ("auto", "last"):
        find_start(dataclasses.replace(starting(run, path), follow=Follow(which=which)))
    with pytest.raises(StartError, match=r"--follow.which best chooses among those of a run: leave it out"):
        find_start(dataclasses.replace(starting(run, path), follow=Follow(which="best")))


@pytest.mark.parametrize("inner", [".", "checkpoints"])
def test_the_best_of_a_run_is_sought(trained, inner):
    directory, run, _ = trained
    with pytest.raises(CheckpointError, match="has a held-out loss, so none is the best"):
        find_start(dataclasses.replace(starting(run, directory / inner), follow=Follow(which="best")))
