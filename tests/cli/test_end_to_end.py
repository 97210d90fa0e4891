"""Text in, a model out, with the real loop and models of a few thousand numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TINY = ["--model.d-model", "16", "--model.d-ff", "32", "--model.num-heads", "2", "--model.d-kv", "8"]
TINY += [
    "--model.num-encoder-layers",
    "1",
    "--model.num-decoder-layers",
    "1",
    "--batch-size",
    "2",
    "--eval.max-batches",
    "2",
]
TINY += ["--schedule", "constant", "--optimizer.learning-rate", "0.01"]
SHORT = ["--inputs-length", "32", "--mean-span-length", "3", "--heldout-share", "0.2"]


def spanloom(*argv, cwd):
    """The command in a process of its own, as users run it."""
    code = "import sys; from spanloom.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ}
    )
    return done.returncode, done.stdout, done.stderr


def lines_of(directory):
    return [json.loads(line) for line in (Path(directory) / "metrics.jsonl").read_text().splitlines()]


def metrics(directory, kind, field):
    return {line["step"]: line[field] for line in lines_of(directory) if line["kind"] == kind}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A working directory with a little text and a few pairs."""
    directory = tmp_path_factory.mktemp("work")
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    text = [" ".join(words[(i * k) % 5] for k in range(1, 12)) + "." for i in range(200)]
    (directory / "corpus").mkdir()
    (directory / "corpus" / "a.txt").write_text("\n".join(text))
    (directory / "pairs.tsv").write_text("".join(f"{w}{i}\t{w.upper()}{i}\n" for i in range(12) for w in words))
    return directory


@pytest.fixture(scope="module")
def pretrained(corpus):
    """A run of six steps in runs/a: three, then three more by a second command."""
    argv = ["pretrain", "--text", "corpus/*.txt", "--model", "byt5_tiny", "--out", "runs/a", *SHORT, *TINY]
    argv += ["--log.every", "1", "--checkpoint.every", "2", "--eval.every", "3"]
    first = spanloom(*argv, "--steps", "3", cwd=corpus)
    assert first[0] == 0, first
    second = spanloom("train", "runs/a", "--steps", "6", cwd=corpus)
    assert second[0] == 0, second
    return first[1], second[1]


def test_text_in_model_out(corpus, pretrained):
    first, second = pretrained
    assert "beginning in runs/a" in first
    assert "200 documents" not in first  # 160 or so train, 40 or so held out
    assert "going on from step 3 in runs/a" in second
    assert list(metrics(corpus / "runs" / "a", "train", "loss")) == [1, 2, 3, 4, 5, 6]
    assert list(metrics(corpus / "runs" / "a", "eval", "heldout_loss")) == [3, 6]
    assert {"config.json", "model.safetensors"} <= {p.name for p in (corpus / "runs" / "a" / "huggingface").iterdir()}
    for shown in ("this model", "bigram model", "unigram model", "1. ", "[right guess]", "what to try next"):
        assert shown in second
    (baselines,) = [
        line for line in lines_of(corpus / "runs" / "a") if line["kind"] == "baselines" and line["step"] == 6
    ]
    assert 0 < baselines["bigram_loss"] <= baselines["bigram_text_loss"]


def test_a_run_in_two_parts_equals_one(corpus, pretrained):
    code, out, err = spanloom("train", "runs/a", "--out", "runs/straight", cwd=corpus)
    assert code == 0, (out, err)
    assert metrics(corpus / "runs" / "straight", "train", "loss") == metrics(corpus / "runs" / "a", "train", "loss")


@pytest.mark.usefixtures("pretrained")
def test_changed_settings_and_forking(corpus):
    code, _, err = spanloom("train", "runs/a", "--seed", "1", cwd=corpus)
    assert code == 1
    assert "seed  0  ->  1" in err
    code, out, err = spanloom("train", "runs/a", "--seed", "1", "--steps", "8", "--fork", "runs/fork", cwd=corpus)
    assert code == 0, (out, err)
    assert list(metrics(corpus / "runs" / "fork", "train", "loss")) == [7, 8]
    assert max(metrics(corpus / "runs" / "a", "train", "loss")) == 6


@pytest.mark.usefixtures("pretrained")
@pytest.mark.parametrize("start", ["runs/a", "runs/a/checkpoints/6", "runs/a/huggingface"])
def test_finetuning_from_what_came_out(corpus, start, tmp_path):
    argv = ["finetune", "--data", "pairs.tsv", "--inputs", "0", "--targets", "1", "--heldout", "0.2", "--start", start]
    code, out, err = spanloom(*argv, "--out", str(tmp_path), "--steps", "2", "--batch-size", "4", cwd=corpus)
    assert code == 0, (out, err)
    assert len(metrics(tmp_path, "eval", "heldout_loss")) == 1
    assert "exact match on" in out
    assert list(metrics(tmp_path, "exact_match", "exact_match")) == [2]


@pytest.mark.usefixtures("pretrained")
def test_a_finished_run_shows_its_results_again_and_keeps_an_edited_export(corpus):
    card = corpus / "runs" / "a" / "huggingface" / "README.md"
    card.write_text("mine")
    code, out, err = spanloom("train", "runs/a", cwd=corpus)
    assert code == 0, (out, err)
    assert "bigram model" in out
    assert card.read_text() == "mine"
    keys = [(line["kind"], line.get("task"), line["step"]) for line in lines_of(corpus / "runs" / "a")]
    assert len(keys) == len(set(keys))


@pytest.mark.usefixtures("pretrained")
def test_converting_and_filling(corpus, tmp_path):
    code, out, err = spanloom("convert", "runs/a", str(tmp_path / "hf"), "--to", "hf", "--which", "best", cwd=corpus)
    assert code == 0, (out, err)
    for checkpoint in ("runs/a", str(tmp_path / "hf")):
        code, out, err = spanloom("fill", checkpoint, "--text", "alpha <mask> gamma", "--max-length", "8", cwd=corpus)
        assert code == 0, (out, err)
        assert json.loads(out)["text"] == "alpha <mask> gamma"


def test_stores_beforehand(corpus):
    argv = ["--text", "corpus/*.txt", "--model", "byt5_tiny", "--out", "runs/cached", *SHORT, *TINY]
    code, out, err = spanloom("cache", "pretrain", *argv, cwd=corpus)
    assert code == 0, (out, err)
    assert "stores in runs/cached/stores" in out
    before = {p: p.stat().st_mtime_ns for p in (corpus / "runs" / "cached" / "stores").rglob("*.arrow")}
    code, out, err = spanloom("pretrain", *argv, "--steps", "1", cwd=corpus)
    assert code == 0, (out, err)
    assert before == {p: p.stat().st_mtime_ns for p in (corpus / "runs" / "cached" / "stores").rglob("*.arrow")}
