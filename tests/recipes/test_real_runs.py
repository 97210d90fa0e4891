"""The README's two real runs in a size for tests: real data, small models, and clearly better than the baselines."""

import gzip
import itertools
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from golden_data import shared_dir

from spanloom.cli.main import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SMALL = ["--model.num-encoder-layers", "2", "--model.num-decoder-layers", "1"]
QUICK = [
    "--eval.every",
    "1000",
    "--checkpoint.every",
    "1000",
    "--after.export",
    "false",
    "--schedule.warmup-steps",
    "20",
]


def told(run: Path, kind: str) -> dict[str, dict]:
    """The last event of a kind, by task."""
    events = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {event["task"]: event for event in events if event["kind"] == kind}


def test_hungarian_words_to_sounds(tmp_path):
    data = str(shared_dir("data", "labelled", "g2p"))
    words = [
        "--data",
        data,
        "--languages",
        "hun",
        "--out",
        str(tmp_path / "run"),
        "--steps",
        "400",
        "--batch-size",
        "4",
    ]
    size = [*SMALL, "--model.d-model", "128", "--model.num-heads", "2", "--schedule.decay-steps", "400"]
    assert main(["train", "g2p", *words, *size, *QUICK]) == 0
    rates = told(tmp_path / "run", "metrics")["hun"]
    assert rates["per"] < 35, "copying the letters gets 50.6"
    assert rates["wer"] < 85, "copying the letters gets 98.7"


def test_prompted_questions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "prompted_small" / "prepare.py"))["prepare"](shared_dir("data", "labelled"), tmp_path)
    templates = shared_dir("data", "promptsource", "v0.2.3", "templates", "trec")
    vocabulary = shared_dir("data", "tokenizers", "t5") / "spiece.model"
    whole = shared_dir("data", "corpora", "eltec") / "en.jsonl.gz"
    with gzip.open(whole, "rt", encoding="utf-8") as file, open("novels.jsonl", "w", encoding="utf-8") as novels:
        novels.writelines(itertools.islice(file, 4))
    size = [*SMALL, "--model.d-model", "64", "--model.d-ff", "128", "--model.num-heads", "2", "--model.d-kv", "32"]
    train = ["--optimizer", "adamw-rms", "--schedule", "cosine", *QUICK]
    text = ["--text", "novels.jsonl", "--vocabulary", str(vocabulary), "--model", "t5_1_1_small"]
    short = ["--inputs-length", "64", "--batch-size", "8", "--steps", "40", "--eval.max-batches", "1"]
    bare = ["--after.fills", "0", "--after.baselines", "false"]
    assert main(["pretrain", *text, *size, *short, *bare, *train, "--out", "novels"]) == 0
    learn = ["--learn", "trec_trec*", "trec_pick*", "trec_which*", "--judge", "trec_what_category*"]
    given = ["--data", "trec=trec", "--prompts", str(templates), *learn, "--start", "novels", "--maximum", "3000"]
    lengths = ["--inputs-length", "128", "--targets-length", "16", "--batch-size", "8", "--steps", "300"]
    assert main(["train", "prompted", *given, *lengths, *train, "--eval.batch-size", "20", "--out", "run"]) == 0
    ranked = told(Path("run"), "eval")
    assert set(ranked) == {
        "trec_pick_the_best_descriptor",
        "trec_trec1",
        "trec_trec2",
        "trec_what_category_best_describe",
        "trec_which_category_best_describes",
    }
    for name, numbers in ranked.items():
        assert numbers["accuracy"] > numbers["majority"] + 10, f"{name}: {numbers}"


@pytest.mark.slow
def test_the_readme_run_on_prompts_runs_to_its_end_and_again(tmp_path):
    """All of its commands in a few steps each; given again, they come to the same table."""
    with gzip.open(shared_dir("data", "corpora", "eltec") / "en.jsonl.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "novels.jsonl").write_text("".join(itertools.islice(file, 4)), encoding="utf-8")
    places = [shared_dir("data", "labelled"), tmp_path / "novels.jsonl", shared_dir("data", "promptsource", "v0.2.3")]
    line = ["bash", EXAMPLES / "prompted_small" / "run.sh", *places, tmp_path / "out"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "FEWER": "400"}
    for _ in range(2):
        done = subprocess.run(line, env=environment, check=True, capture_output=True, text=True)
        assert "| glue_mrpc, test | 1,725 | 66.5 |" in done.stdout
    for run, rows in (("prompted", 11 + 6 + 4 + 6), ("test", 4 + 5 + 12)):
        results = (tmp_path / "out" / "runs" / run / "eval" / "results.jsonl").read_text().splitlines()
        assert sum(json.loads(row)["kind"] == "task" for row in results) == rows
