"""What the data engine is for, on real data: novels in six languages and two prompted tasks, packed, by the command."""

import json

import pytest
from golden_data import shared_dir

from spanloom.cli.main import main

RECIPE = """
from spanloom.model.sizes import named
from spanloom.settings.mixture import ByAlpha, Mixture, Weighted
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.row_sources import RowFiles
from spanloom.settings.run import After, Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import Task, TextFiles

SHARED = {shared!r}
LANGUAGES = ("de", "en", "fr", "hu", "pt", "sv")


def paraphrase(row):
    asked = f"Do these mean the same? {{row['#1 String']}} | {{row['#2 String']}}"
    return {{"inputs": asked, "targets": "yes" if row["Quality"] == "1" else "no"}}


def question(row):
    label, _, text = row["text"].partition(" ")
    return {{"inputs": f"What is asked for? {{text}}", "targets": label.partition(":")[0]}}


def recipe(alpha: float = 0.3) -> Run:
    objective = SpanCorruption(inputs_length=256, mean_span_length=20.0)
    novels = [
        Task(name, TextFiles((f"{{SHARED}}/corpora/eltec/{{name}}.jsonl.gz",)), objective=objective)
        for name in LANGUAGES
    ]
    mrpc, trec = f"{{SHARED}}/labelled/mrpc/msr-para", f"{{SHARED}}/labelled/trec/TREC"
    prompted = [
        Task(
            "paraphrase",
            RowFiles((mrpc + "-train.tsv",), heldout_files=(mrpc + "-val.tsv",)),
            preprocessors=(paraphrase,),
            objective=Supervised(512, 16),
        ),
        Task(
            "question",
            TextFiles((trec + ".train",), heldout_files=(trec + ".test",), encoding="latin-1", format="txt"),
            preprocessors=(question,),
            objective=Supervised(512, 16),
        ),
    ]
    languages = Mixture("novels", tuple(Weighted(task, ByAlpha(alpha, unit="characters")) for task in novels))
    prompts = Mixture("prompted", tuple(map(Weighted, prompted)))
    both = Mixture("all", (Weighted(languages, 3.0), Weighted(prompts, 1.0)))
    return Run(
        name="six",
        task=both,
        model=named("byt5_tiny"),
        packing=Packed(512, 128),
        batch_size=8,
        steps=4,
        checkpoint=Checkpoints(every=2),
        eval=Evaluation(every=4, max_batches=1),
        log=Logging(every=1),
        after=After(baselines=False, fills=0, export=False),
    )
"""


def losses(directory):
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines if line["kind"] == "train"]


@pytest.mark.golden
def test_six_languages_and_two_prompted_tasks_are_packed_trained_and_gone_on_with(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPANLOOM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "six.py").write_text(RECIPE.format(shared=str(shared_dir("data"))))
    assert main(["train", "six.py", "--out", "straight"]) == 0
    said = capsys.readouterr().out
    assert "packed into rows of 512 + 128 tokens" in said
    for name in ("de", "en", "fr", "hu", "pt", "sv", "paraphrase", "question"):
        assert f"data: {name}: 1" in said, "each has about an eighth of the examples"

    (tmp_path / "stopped").mkdir()
    (tmp_path / "straight" / "stores").rename(tmp_path / "stopped" / "stores")
    assert main(["train", "six.py", "--out", "stopped", "--steps", "2"]) == 0
    assert main(["train", "six.py", "--out", "stopped"]) == 0
    assert losses(tmp_path / "stopped") == losses(tmp_path / "straight")

    assert main(["show", "stopped", "-n", "0", "--batch"]) == 0
    shown = capsys.readouterr().out
    assert "padding is" in shown and "paraphrase" in shown
