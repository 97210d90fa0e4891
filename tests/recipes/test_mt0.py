import json

import pytest
from bare_checkpoint import save_bare

from spanloom.cli.main import main
from spanloom.recipes.mt0 import recipe
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.settings.feature import Feature
from spanloom.settings.mixture import ByAlpha
from spanloom.settings.packing import Unpacked
from spanloom.settings.serialize import SettingsError, from_json, to_json


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory: a checkpoint, and pairs in three languages as xP3 has them."""
    monkeypatch.chdir(tmp_path)
    save_bare(tmp_path / "start", 5, quickstart().resolve())
    for language, count in (("en", 300), ("es", 30), ("sw", 10)):
        (tmp_path / "xP3" / language).mkdir(parents=True)
        rows = ({"inputs": f"{language} ask {number}", "targets": f"say {number}"} for number in range(count))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "xP3" / language / "xp3_made_up_train.jsonl").write_text(text)
    (tmp_path / "xP3" / "README.md").write_text("no language")
    return tmp_path


@pytest.mark.short
def test_languages_with_rates(folder):
    run = recipe("xP3", "start", ("en=0.4", "es=0.1", "sw=0")).resolve()
    assert from_json(to_json(run)) == run
    assert [(part.part.name, part.rate) for part in run.task.parts] == [("en", 0.4), ("es", 0.1)]
    assert run.tasks[0].source.files == ("xP3/en/*.jsonl*",)
    assert run.loss.normalizer == "sequences" and run.packing == Unpacked()
    assert (run.batch_size, run.model.dropout, run.tasks[0].features) == (512, 0.1, ())


@pytest.mark.short
def test_languages_by_size_and_inputs_without_eos(folder):
    run = recipe("xP3", "start", alpha=0.3, inputs_eos=False)
    assert [part.rate for part in run.task.parts] == [ByAlpha(0.3)] * 3
    assert run.tasks[0].features == (Feature("inputs", add_eos=False), Feature("targets"))


@pytest.mark.short
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"data": None}, "mt0 needs --data"),
        ({"start": None}, "mt0 needs --start"),
        ({"data": "nowhere"}, "--data nowhere: no such folder"),
        ({"data": "start"}, "--data start: no folder in it has .jsonl or .parquet files"),
        ({"rates": ("en=1", "ess=1")}, "--rates ess=1: no language has a folder 'ess'; did you mean es"),
        ({"rates": ("en=x",)}, "--rates en=x: must be LANGUAGE=RATE"),
        ({"rates": ("en=1",)}, "--rates lacks es, sw: give each of them a rate, 0 to leave it out"),
    ],
)
def test_what_names_nothing_is_refused(folder, given, said):
    with pytest.raises(SettingsError, match=said):
        recipe(**{"data": "xP3", "start": "start"} | given)


def test_it_shows_what_it_would_train_on(folder, capsys):
    words = ["--data", "xP3", "--start", "start", "--alpha", "0.5", "--batch-size", "8", "--out", "run"]
    packed = ["--packing", "packed", "--loss.normalizer", "real_tokens"]
    assert main(["show", "mt0", *words, *packed, "-n", "1", "--heldout-share", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert "ask" in shown and "say" in shown
    shares = {
        line.split()[0]: line for line in shown.splitlines() if line.startswith(("en ", "es ", "sw ")) and "%" in line
    }
    assert set(shares) == {"en", "es", "sw"}
