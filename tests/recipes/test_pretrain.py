import json
from dataclasses import replace

import pytest

from spanloom.recipes.pretrain import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import TextFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.facts import Facts, to_data

pytestmark = pytest.mark.short


def test_byte_models_take_bytes_and_long_spans():
    run = recipe(text=("a",), model="byt5_small")
    assert run.task.vocabulary == Bytes()
    assert (run.task.objective.inputs_length, run.task.objective.mean_span_length) == (1024, 20.0)
    assert run.model.name == "byt5_small"


def test_sentencepiece_models_take_short_spans():
    run = recipe(text=("a",), model="t5_1_1_base", vocabulary="my.model")
    assert run.task.vocabulary == SentencePiece("my.model")
    assert (run.task.objective.inputs_length, run.task.objective.mean_span_length) == (512, 3.0)


def test_zero_is_refused_and_not_taken_for_unset():
    with pytest.raises(SettingsError, match="inputs_length is 0"):
        recipe(text=("a",), inputs_length=0).resolve()
    with pytest.raises(SettingsError, match="mean_span_length is 0"):
        recipe(text=("a",), mean_span_length=0.0).resolve()


def test_vocabulary_must_be_named_for_other_families():
    for model in ("", " "):
        with pytest.raises(SettingsError, match="--model is empty"):
            recipe(model=model)
    with pytest.raises(SettingsError, match="t5_1_1_base needs a vocabulary: --vocabulary FILE"):
        recipe(text=("a",), model="t5_1_1_base")
    assert recipe(text=("a",), model="t5_small", vocabulary="bytes").task.vocabulary == Bytes()
    assert recipe(text=("a",), vocabulary="my.model").task.vocabulary == SentencePiece("my.model")


def test_everything_is_handed_on():
    run = recipe(
        text=("a", "b"),
        heldout=("c",),
        heldout_share=0.2,
        field="{x}",
        unit="document",
        format="txt",
        encoding="latin-1",
        errors="skip",
        inputs_length=77,
        noise_density=0.3,
        mean_span_length=4.0,
    )
    assert run.task.source == TextFiles(("a", "b"), ("c",), 0.2, "{x}", "document", "txt", "latin-1", "skip")
    objective = run.task.objective
    assert (objective.inputs_length, objective.noise_density, objective.mean_span_length) == (77, 0.3, 4.0)


def test_a_start_gives_model_and_vocabulary_unless_they_are_named(tmp_path):
    start = quickstart()
    start = replace(
        start,
        model=replace(start.model, dropout=0.1),
        task=replace(start.task, vocabulary=Bytes("google")),
    )
    place = tmp_path / "checkpoints" / "5"
    place.mkdir(parents=True)
    facts = Facts(5, {"examples": 20}, start.resolve(), {"spanloom": "0"})
    (place / "checkpoint.json").write_text(json.dumps(to_data(facts, {})))
    run = recipe(text=("a",), start=str(tmp_path))
    assert run.start == str(tmp_path)
    assert (run.model, run.task.vocabulary) == (replace(start.model, dropout=0.0), Bytes("google"))
    assert run.task.objective.inputs_length == 1024
    named = recipe(text=("a",), start=str(tmp_path), model="byt5_small", vocabulary="bytes")
    assert (named.model.name, named.task.vocabulary) == ("byt5_small", Bytes())


def test_unknown_model():
    with pytest.raises(ValueError, match="did you mean byt5_small"):
        recipe(text=("a",), model="byt5_smal")
