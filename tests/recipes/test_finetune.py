import json
from dataclasses import replace

import pytest

from spanloom.model.sizes import named
from spanloom.recipes.finetune import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.function import FunctionError
from spanloom.settings.measures import metric_of
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import Adafactor
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PairFiles
from spanloom.settings.vocabulary import Bytes, SentencePiece
from spanloom.training.facts import Facts, to_data

pytestmark = pytest.mark.short


def checkpoint(directory, run, files=None):
    """The settings part of a checkpoint."""
    place = directory / "checkpoints" / "5"
    place.mkdir(parents=True)
    facts = Facts(5, {"examples": 20}, run.resolve(), {"spanloom": "0"})
    (place / "checkpoint.json").write_text(json.dumps(to_data(facts, {})))
    for name, content in (files or {}).items():
        (place / "vocabulary").mkdir(exist_ok=True)
        (place / "vocabulary" / name).write_bytes(content)
    return place


def test_model_and_vocabulary_are_those_of_the_start(tmp_path):
    start = quickstart()
    start = replace(start, task=replace(start.task, vocabulary=Bytes("google")))
    place = checkpoint(tmp_path, start)
    for path in (tmp_path, place):
        run = recipe(data=("p.tsv",), start=str(path))
        assert run.model == replace(start.model, dropout=0.1)
        assert run.task.vocabulary == Bytes("google")
        assert run.start == str(path)
        run.resolve()


@pytest.mark.parametrize(("model", "rate"), [("byt5_nano", 0.01), ("t5_1_1_small", 0.001), ("byt5_base", 0.001)])
def test_the_learning_rate_is_t5s_but_for_very_narrow_models(tmp_path, model, rate):
    checkpoint(tmp_path, replace(quickstart(), model=named(model)))
    assert recipe(("p",), str(tmp_path)).optimizer == Adafactor(learning_rate=rate)


def test_sentencepiece_comes_from_the_checkpoint_unless_the_original_is_the_same(tmp_path):
    original = tmp_path / "my.model"
    start = quickstart()
    task = replace(start.task, vocabulary=SentencePiece(str(original), "appended"))
    run = replace(start, task=task, model=named("t5_tiny"))
    place = checkpoint(tmp_path, run, {"my.model": b"pieces"})
    copy = str(place / "vocabulary" / "my.model")
    assert recipe(("p",), str(tmp_path)).task.vocabulary == SentencePiece(copy, "appended")
    original.write_bytes(b"pieces")
    assert recipe(("p",), str(tmp_path)).task.vocabulary == SentencePiece(str(original), "appended")
    original.write_bytes(b"others")
    assert recipe(("p",), str(tmp_path)).task.vocabulary == SentencePiece(copy, "appended")
    (place / "vocabulary" / "my.model").unlink()
    with pytest.raises(SettingsError, match="must hold one SentencePiece model, not 0"):
        recipe(("p",), str(tmp_path))


@pytest.mark.parametrize(
    ("heldout", "share", "files"),
    [(None, 0.05, ()), ("0.2", 0.2, ()), ("dev.tsv", 0.05, ("dev.tsv",)), ("dev/*.tsv", 0.05, ("dev/*.tsv",))],
)
def test_heldout_is_a_share_or_files(tmp_path, heldout, share, files):
    checkpoint(tmp_path, quickstart())
    source = recipe(data=("p.tsv",), start=str(tmp_path), heldout=heldout).task.source
    assert (source.heldout_share, source.heldout_files) == (share, files)


def test_everything_is_handed_on(tmp_path):
    checkpoint(tmp_path, quickstart())
    run = recipe(
        data=("a", "b"),
        start=str(tmp_path),
        inputs="x",
        targets="1",
        header="no",
        format="tsv",
        encoding="latin-1",
        errors="skip",
        inputs_length=10,
        targets_length=20,
        too_long="trim",
    )
    assert run.task.source == PairFiles(("a", "b"), (), 0.05, "x", "1", "no", "tsv", "latin-1", "skip")
    assert run.task.objective == Supervised(10, 20, "trim")


def test_a_start_that_is_none(tmp_path):
    with pytest.raises(SettingsError, match="fine-tuning needs --start"):
        recipe(data=("p",))
    with pytest.raises(SettingsError, match="does not exist"):
        recipe(data=("p",), start=str(tmp_path / "absent"))
    with pytest.raises(SettingsError, match=r"is none of these \(it holds nothing\).*Hugging Face folder"):
        recipe(data=("p",), start=str(tmp_path))
    place = checkpoint(tmp_path, quickstart())
    (place / "checkpoint.json").write_text("{}")
    with pytest.raises(SettingsError, match=r"--start: checkpoint .* is damaged: .*checkpoint\.json is not "):
        recipe(data=("p",), start=str(tmp_path))


def test_a_hugging_face_folder(tmp_path):
    pytest.importorskip("jax")
    import jax

    from spanloom.conversion.convert import convert_to_hf
    from spanloom.conversion.trained_model import Lineage, TrainedModel
    from spanloom.model.params import declare, initialize

    model = named("byt5_tiny")
    params = initialize(declare(model), jax.random.key(0))
    convert_to_hf(TrainedModel(model, params, Bytes("google"), Lineage("test")), tmp_path / "hf")
    run = recipe(data=("p",), start=str(tmp_path / "hf"))
    assert run.task.vocabulary == Bytes("google")
    assert replace(run.model, name="", dropout=0.0) == replace(model, name="", dropout=0.0)


def test_an_empty_start_is_not_the_working_directory():
    for start in ("", " "):
        with pytest.raises(SettingsError, match="--start is empty"):
            recipe(data=("a.tsv",), start=start)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"3", b"null", b"{}", b'{"run": 3}', b'{"run": []}', b"\xff", b"[" * 200_000]
)
def test_a_checkpoint_file_of_any_content_is_met(tmp_path, content):
    place = checkpoint(tmp_path, quickstart())
    (place / "checkpoint.json").write_bytes(content)
    with pytest.raises(SettingsError, match=r"--start: checkpoint .* is damaged: .*checkpoint\.json is not "):
        recipe(data=("p",), start=str(tmp_path))


def test_metrics_are_named(tmp_path):
    checkpoint(tmp_path, quickstart())
    run = recipe(("p",), str(tmp_path), metrics=("rouge", "accuracy"))
    assert run.task.metrics == (metric_of("rouge"), metric_of("accuracy"))
    run.resolve()
    with pytest.raises(FunctionError, match="--metrics: there is none called 'acuracy'; did you mean accuracy"):
        recipe(("p",), None, metrics=("acuracy",))
