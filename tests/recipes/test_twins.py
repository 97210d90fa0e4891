"""Twins of the five training projects in the smallest size: real data, the real commands, from raw text to the end."""

import gzip
import json
import runpy
from pathlib import Path

import pytest
from golden_data import shared_dir
from tiny_model import tiny_source

from spanloom.cli.main import main
from spanloom.conversion.huggingface import read_lineage, write_folder
from spanloom.conversion.stored_model import as_stored

LANGUAGES = ("en", "de", "fr", "hu", "sv", "pt")
PREPARE = Path(__file__).resolve().parents[2] / "examples" / "prompted_small" / "prepare.py"
SMALL = ["--model.dtype", "float32", "--model.remat", "none", "--eval.max-batches", "1", "--log.tensorboard", "false"]
SMALL += ["--after.export", "false", "--after.baselines", "false", "--after.fills", "0"]
LITTLE = [*SMALL, "--batch-size", "4", "--eval.batch-size", "4"]


@pytest.fixture(scope="module")
def novels(tmp_path_factory):
    """NAME=FILE of the first pages of a novel in each language, a row a page."""
    folder = tmp_path_factory.mktemp("novels")
    for name in LANGUAGES:
        with gzip.open(shared_dir("data", "corpora", "eltec") / f"{name}.jsonl.gz", "rt", encoding="utf-8") as whole:
            text = json.loads(next(whole))["text"]
        pages = (text[at : at + 600] for at in range(0, 12_000, 600))
        rows = "".join(json.dumps({"text": page}) + "\n" for page in pages)
        (folder / f"{name}.jsonl").write_text(rows, encoding="utf-8")
    return [f"{name}={folder}/{name}.jsonl" for name in LANGUAGES]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A byte model as somebody else released it."""
    folder = tmp_path_factory.mktemp("start")
    write_folder(folder, as_stored(tiny_source()), name="tiny")
    return str(folder)


def spanloom(*words):
    assert main([str(word) for word in words]) == 0


def test_hmbyt5_learns_six_languages_and_says_what_it_forgot(novels, start, tmp_path):
    size = ["--task.objective.inputs-length", "64", "--heldout-share", "0.2", "--steps", "1"]
    out = tmp_path / "hm"
    spanloom("train", "hmbyt5", "--text", *novels, "--start", start, *size, *LITTLE, "--out", out)
    table = [line.split("|")[1:-1] for line in (out / "forgetting.md").read_text().splitlines() if "|" in line]
    assert [cell.strip() for cell in table[0][2:]] == list(LANGUAGES)
    assert [row[0].strip() for row in table[2:]] == [*LANGUAGES, "forgotten"]
    assert all(float(cell) >= 0 for row in table[2:] for cell in row[2:])


def test_ro_t5_has_a_vocabulary_of_its_own_and_all_its_checkpoints_are_converted_by_one_command(
    novels, tmp_path, capsys
):
    text = next(one for one in novels if one.startswith("hu=")).removeprefix("hu=")
    words, run, exported = tmp_path / "hu.model", tmp_path / "hu", tmp_path / "exported"
    spanloom("vocab", "train", "--text", text, "--size", "340", "--out", words)
    size = ["--vocab-size", "512", "--model.d-model", "16", "--model.d-ff", "16", "--model.num-heads", "1"]
    layers = ["--model.d-kv", "8", "--model.num-encoder-layers", "1", "--model.num-decoder-layers", "1"]
    short = ["--task.objective.inputs-length", "64", "--steps", "2", "--checkpoint.every", "1"]
    short += ["--heldout-share", "0.2"]
    given = ["--text", text, "--vocabulary", words, *size, *layers, *short, *LITTLE]
    spanloom("train", "ro_t5", *given, "--out", run)
    capsys.readouterr()
    spanloom("convert", run, exported, "--to", "hf", "--which", "all")
    assert capsys.readouterr().out.count("weights equal to the last bit") == 2
    assert [read_lineage(exported / step).step for step in "12"] == [1, 2]
    spanloom("convert", run, exported, "--to", "hf", "--which", "all")
    assert capsys.readouterr().out.count("is there already") == 2


def test_t0_is_cached_trained_and_judged_beside_what_is_published(start, tmp_path, capsys):
    runpy.run_path(str(PREPARE))["prepare"](shared_dir("data", "labelled"), tmp_path / "all")
    for name in ("glue_mrpc/train", "glue_mrpc/validation", "super_glue_copa/validation"):
        place = tmp_path / "data" / f"{name}.jsonl"
        place.parent.mkdir(parents=True, exist_ok=True)
        lines = (tmp_path / "all" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        place.write_text("".join(lines[:12]), encoding="utf-8")
    given = ["--data", tmp_path / "data", "--prompts", shared_dir("data", "promptsource", "v0.1.0")]
    given += ["--missing", "skip", "--inputs-length", "64", "--targets-length", "16"]
    few = ["--batch-tokens", "1280", "--steps", "2"]
    run = tmp_path / "t0"
    spanloom("cache", "t0", *given, "--start", start, *few, "--out", run)
    spanloom("train", "t0", *given, "--start", start, *few, *SMALL, "--eval.batch-size", "4", "--out", run)
    capsys.readouterr()
    judged = ["--mixture", "t0_eval_score_eval", "--out", tmp_path / "judged", "--decode", "false"]
    spanloom("eval", run, "t0", *given, *judged, "--tasks", "super_glue_copa_*", "--eval.batch-size", "4")
    said = capsys.readouterr().out
    assert "T0-3B" in said and "super_glue_copa" in said
    table = (tmp_path / "judged" / "eval" / "published.md").read_text(encoding="utf-8")
    copa = next(line for line in table.splitlines() if line.startswith("| COPA"))
    assert 0 <= float(copa.split("|")[2]) <= 100 and copa.endswith("| 91.5 | 75.9 | 96.6 | 89.1 |")


def test_mt5_is_adapted_to_going_on_with_text_and_then_to_prompts(novels, start, tmp_path):
    few = ["--steps", "2", *LITTLE, "--inputs-length", "32"]
    adapted = tmp_path / "lm"
    text = ["--text", *novels[:2], "--heldout-share", "0.2"]
    spanloom("train", "lm_adaptation", *text, "--start", start, *few, "--out", adapted)
    for name in ("en", "de"):
        (tmp_path / "xP3" / name).mkdir(parents=True)
        rows = [{"inputs": f"{name} {number} + 1 =", "targets": f"{number + 1}"} for number in range(20)]
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / "xP3" / name / "sums.jsonl").write_text(content)
    pairs = ["--data", tmp_path / "xP3", "--targets-length", "8", "--heldout-share", "0.2"]
    spanloom("train", "mt0", *pairs, "--start", adapted, *few, "--out", tmp_path / "mt0")
    spanloom("eval", tmp_path / "mt0", "--eval.batch-size", "4")
    rows = list(map(json.loads, (tmp_path / "mt0" / "eval" / "results.jsonl").read_text().splitlines()))
    assert {row["task"] for row in rows if row["kind"] == "task"} == {"en", "de"}
