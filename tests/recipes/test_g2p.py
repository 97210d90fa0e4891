import json

import pytest
from labelled_data import LANGUAGES, write_words

from spanloom.cli.main import main
from spanloom.recipes.g2p import recipe
from spanloom.settings.mixture import Weighted
from spanloom.settings.packing import Packed
from spanloom.settings.serialize import SettingsError, from_json, to_json
from spanloom.settings.task import PairFiles

TINY = {
    "model.d-model": 16,
    "model.d-ff": 32,
    "model.num-heads": 1,
    "model.d-kv": 8,
    "model.num-encoder-layers": 1,
    "model.num-decoder-layers": 1,
    "schedule.warmup-steps": 1,
    "batch-size": 2,
    "after.export": "false",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Words of two made-up languages, as SIGMORPHON 2020 lays them out."""
    folder = tmp_path_factory.mktemp("words")
    write_words(folder)
    return folder


@pytest.mark.short
def test_each_language_is_a_task_that_is_told_its_name(folder):
    run = recipe(str(folder)).resolve()
    assert from_json(to_json(run)) == run
    assert [task.name for task in run.tasks] == sorted(LANGUAGES)
    assert run.task.parts == tuple(map(Weighted, run.tasks)), "drawn alike"
    files = ((str(folder / part / f"aba_{part}.tsv"),) for part in ("train", "dev"))
    assert run.tasks[0].source == PairFiles(*files, inputs=" aba {0}", targets="1", header="no")
    assert isinstance(run.packing, Packed)


@pytest.mark.short
def test_languages_and_the_measured_part_may_be_chosen(folder):
    (task,) = recipe(str(folder), languages=("bab",), heldout="test").tasks
    assert task.name == "bab" and task.source.heldout_files == (str(folder / "test" / "bab_test.tsv"),)


@pytest.mark.short
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": None}, "g2p needs --data, the folder with train/hun_train.tsv"),
        ({"data": "nowhere"}, r"--data nowhere: no nowhere/train/\*_train.tsv, such as hun_train.tsv, is there"),
        ({"languages": ("bba",)}, "--languages bba: there are aba, bab in .*; did you mean bab or aba"),
    ],
)
def test_what_is_not_there_is_refused(folder, given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**{"data": str(folder)} | given)


def test_each_language_has_rates_of_its_own(folder, tmp_path):
    flags = [f"--{name}={value}" for name, value in TINY.items()]
    words = ["--data", str(folder), "--out", str(tmp_path), "--steps", "2", "--eval.batch-size", "3"]
    assert main(["train", "g2p", *words, *flags]) == 0
    events = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    rates = {event["task"]: event for event in events if event["kind"] == "metrics"}
    assert set(rates) == set(LANGUAGES)
    assert all(rate["examples"] == 3 and rate["wer"] > 0 and rate["per"] > 0 for rate in rates.values())
