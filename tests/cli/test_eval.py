import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_model import tiny_source
from tiny_training import events, train

from spanloom.cli.errors import CommandError
from spanloom.cli.eval_job import _refuse_without
from spanloom.cli.eval_subjects import mesh_here, subjects_of
from spanloom.cli.main import main
from spanloom.conversion.convert import convert_to_hf
from spanloom.evaluation.loaded import LoadedModel
from spanloom.evaluation.records import HeldoutTask
from spanloom.recipes.prompted import recipe
from spanloom.settings.mesh import Mesh
from spanloom.settings.optimizer import AdamW
from spanloom.settings.packing import Packed
from spanloom.settings.run import After, Checkpoints, Logging
from spanloom.settings.vocabulary import Bytes

PROMPTS = """
templates:
  - {name: good?, inputs: "{{text}} Good?", targets: "{{answer_choices[label]}}", answer_choices: [bad, good]}
  - {name: any, inputs: "{{text}}", targets: "{{answer_choices[label]}}",
     answer_choices: "{{ ['no', 'not at all', 'not really'][label] }}|||{{ ['of course', 'yes', 'indeed'][label] }}"}
  - {name: write, inputs: "Write on {{label}}.", targets: "{{text}}", metrics: [Edit Distance, Other]}
"""
WORDS = ["--data", "reviews=rows.jsonl", "other/x=rows.jsonl", "--prompts", "reviews.yaml", "other.yaml"]
WORDS += ["--judge", "other_*", "--inputs-length", "48", "--targets-length", "14", "--seed", "1"]
TEXT = ["--text", "rows.jsonl", "--field", "text", "--out", "OUT"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Rows, templates of two data sets, a Hugging Face folder, and a run that was trained from it for two steps."""
    folder = tmp_path_factory.mktemp("eval")
    rows = ({"text": f"film {number}", "label": int(number % 3 == 0)} for number in range(100))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reviews.yaml").write_text("dataset: reviews\n" + PROMPTS)
    (folder / "other.yaml").write_text("dataset: other\nsubset: x\n" + "\n".join(PROMPTS.split("\n")[:3]))
    convert_to_hf(replace(tiny_source(), vocabulary=Bytes("google")), folder / "hf")
    assert main(["convert", str(folder / "hf"), str(folder / "own"), "--to", "spanloom"]) == 0
    here = Path.cwd()
    os.chdir(folder)
    try:
        made = recipe(
            data=(f"reviews={folder}/rows.jsonl", f"other/x={folder}/rows.jsonl"),
            prompts=("reviews.yaml", "other.yaml"),
            start=str(folder / "hf"),
            judge=("other_*",),
            inputs_length=48,
            targets_length=14,
        )
        changed = replace(
            made,
            seed=1,
            packing=Packed(48, 14),
            optimizer=AdamW(learning_rate=1e-2),
            batch_size=4,
            steps=2,
            checkpoint=Checkpoints(every=1, keep=2),
            eval=replace(made.eval, every=1, max_batches=0, batch_size=4, answers="all"),
            log=Logging(tensorboard=False),
            after=After(baselines=False, fills=0, export=False),
        )
        said = train(changed, folder / "run")
        assert "(the commonest answer alone: " in said and "  other_x_good_: exact_match " in said
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def inside(place, monkeypatch, tmp_path):
    monkeypatch.chdir(place)
    return tmp_path


def rows_in(folder):
    return records_in(folder / "results.jsonl")


def records_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_on_its_own_tasks(inside, place, capsys):
    """Losses, ranks and texts are those that the loop measured, at each checkpoint; all tables say the same."""
    out = ["--results", str(inside / "e"), "--checkpoints", "all", "--bootstrap", "--length-normalised"]
    assert main(["eval", "run", *out]) == 0
    rows = rows_in(inside / "e")
    tasks = [row for row in rows if row["kind"] == "task"]
    measured = {(e["step"], e["task"]): e for e in events(place / "run") if e["kind"] == "eval"}
    assert len(tasks) == len(measured) == 8
    for row in tasks:
        event = measured[int(row["checkpoint"][4:]), row["task"]]
        assert row["heldout_loss"] == pytest.approx(event["heldout_loss"], rel=1e-4)
        for name, logged in (("rank_accuracy", "accuracy"), ("exact_match", "exact_match"), ("majority", "majority")):
            assert row.get(name) == event.get(logged)
        assert row["heldout_loss_low"] <= row["heldout_loss"] <= row["heldout_loss_high"]
        assert ("rank_accuracy" in row) == ("rank_accuracy_normalised_low" in row) == (row["template"] != "write")
        assert 0 <= row["exact_match"] <= 100
        assert row["commonest_target" if row["template"] == "write" else "majority"] > 0
    names = [(row["kind"], row["data_set"], row["template"]) for row in rows if row["checkpoint"] == "run-1"]
    averages = ["mean", "median", "lower quartile", "upper quartile"]
    assert names == [
        *[("task", "reviews", template) for template in ("any", "good?", "write")],
        *[(kind, "reviews", "") for kind in averages],
        ("task", "other_x", "good?"),
        *[(kind, "other_x", "") for kind in averages],
        ("macro average", "", ""),
    ]
    table = list(csv.DictReader((inside / "e" / "results.csv").open()))
    assert [float(row["heldout_loss"]) for row in table] == [row["heldout_loss"] for row in rows]
    markdown, printed = (inside / "e" / "results.md").read_text(), capsys.readouterr().out
    for text in (markdown, printed):
        assert "(macro average)" in text and text.count("(median)") == 2 and "run-2" in text and "good?" in text


@pytest.mark.parametrize("start", ["hf", "own"])
def test_ranks_are_of_the_log_probabilities_of_choices(start, inside, place):
    out = inside / "e"
    assert main(["eval", start, "prompted", *WORDS, "--out", "run", "--results", str(out), "--tasks", "reviews_*"]) == 0
    model = LoadedModel(replace(tiny_source(), vocabulary=Bytes("google")))
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    for task in ("reviews_good_", "reviews_any"):
        records = [json.loads(line) for line in (folder / f"{task}.jsonl").read_text().splitlines()]
        right = []
        for record in records:
            pairs = [(record["inputs"], choice) for choice in record["choices"]]
            scores = [one.log_prob for one in model.score(pairs, inputs_eos=False)]  # T0's inputs have no end
            np.testing.assert_allclose(record["scores"], scores, atol=1e-3)
            assert record["lengths"] == [len(choice) + 1 for choice in record["choices"]]
            assert record["choices"][record["correct"].index(True)] == record["targets"]
            right.append(record["correct"][int(np.argmax(scores))])
        (written,) = model.generate(records[0]["inputs"], max_length=14, inputs_eos=False)
        assert records[0]["prediction"] == written.text
        (row,) = (row for row in rows_in(out) if row["task"] == task)
        assert row["rank_accuracy"] == pytest.approx(100 * np.mean(right))
        firsts = [record["correct"][0] for record in records]
        assert row["majority"] == pytest.approx(100 * max(np.mean(firsts), 1 - np.mean(firsts)))
        assert row["examples"] == len(records)


def test_some_examples_are_spread_over_all_that_are_held_out(inside):
    lines = [json.dumps({"text": f"film {number}", "label": int(number >= 50)}) + "\n" for number in range(100)]
    (inside / "ordered.jsonl").write_text("".join(lines))
    words = ["--data", f"reviews={inside}/ordered.jsonl", "--prompts", "reviews.yaml", "--whole", "--decode", "false"]
    words += ["--tasks", "*good_", "--max-examples", "20", "--out", str(inside / "out")]
    assert main(["eval", "run", "prompted", *words]) == 0
    records = records_in(inside / "out" / "eval" / "run-2" / "reviews_good_.jsonl")
    numbers = [record["example"] for record in records]
    assert len(numbers) == 20 and numbers == sorted(set(numbers)) and numbers[0] < 5 and numbers[-1] >= 95
    assert [record["targets"] for record in records] == ["bad"] * 10 + ["good"] * 10
    shares = [[*words, "--shard", f"{index}/2", "--results", str(inside / "shared")] for index in (1, 0)]
    for share in shares:
        assert main(["eval", "run", "prompted", *share]) == 0
    assert records_in(inside / "shared" / "run-2" / "reviews_good_.jsonl") == records


def test_a_folder_is_another_model_where_any_of_its_files_is(inside, place):
    assert main(["convert", "run", str(inside / "t5x"), "--to", "t5x"]) == 0
    (one,) = subjects_of(inside / "t5x", ("last",))
    weights = next(path for path in (inside / "t5x").rglob("*") if path.parent.name.startswith("target"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    (other,) = subjects_of(inside / "t5x", ("last",))
    assert one.name == other.name and one.fingerprint != other.fingerprint


def test_a_template_may_name_its_metrics(inside):
    words = [*WORDS, "--out", str(inside), "--tasks", "reviews_write", "--max-examples", "2", "--own-metrics"]
    assert main(["eval", "hf", "prompted", *words]) == 0
    row = rows_in(inside / "eval")[0]
    assert row["mean_edit"] > 0 and "exact_match" not in row


def test_a_data_set_that_nothing_was_learnt_from_is_taken_whole(inside, place):
    words = ["--data", "reviews=rows.jsonl", "--prompts", "reviews.yaml", "--results", str(inside), "--decode", "false"]
    stores = {path: path.stat().st_mtime_ns for path in (place / "run" / "stores").rglob("*")}
    assert main(["eval", "run", "prompted", *words, "--out", "run", "--tasks", "*good_"]) == 1, "other settings"
    assert main(["eval", "run", "prompted", *words, "--out", "run", "--tasks", "*good_", "--whole"]) == 0
    assert rows_in(inside)[0]["examples"] == 100
    assert stores == {path: path.stat().st_mtime_ns for path in (place / "run" / "stores").rglob("*")}


def test_a_task_that_fails_is_named_and_the_others_are_evaluated(inside, capsys):
    (inside / "own.yaml").write_text("dataset: reviews\n" + PROMPTS.replace('label]}}", answer', 'label]}}.", answer'))
    words = ["--data", "reviews=rows.jsonl", "--prompts", str(inside / "own.yaml"), "--out", str(inside)]
    assert main(["eval", "hf", "prompted", *words, "--max-examples", "2", "--decode", "false"]) == 1
    assert ": task 'reviews_good_': no example has a right option: are labels hidden" in capsys.readouterr().err
    assert [row["template"] for row in rows_in(inside / "eval") if row["kind"] == "task"] == ["any", "write"]


def test_what_is_finished_is_not_evaluated_again(inside, monkeypatch):
    asked = []
    records = HeldoutTask.records

    def counted(self, model, numbers):
        for block in records(self, model, numbers):
            asked.append(self.task.name)
            if len(asked) == fail:
                raise KeyboardInterrupt
            yield block

    monkeypatch.setattr(HeldoutTask, "records", counted)
    words = ["eval", "run", "--results", str(inside / "e"), "--max-examples", "3"]
    fail = 2
    assert main(words) == 130
    assert not (inside / "e" / "results.jsonl").exists()
    fail, done = 0, asked[0]
    assert main(words) == 0
    assert sorted(asked[2:]) == sorted({*asked} - {done}) and len(asked) == 5
    whole = rows_in(inside / "e")
    asked.clear()
    assert main([*words, "--length-normalised"]) == 0 and not asked
    damaged = next((inside / "e" / "run-2").glob("*any.jsonl"))
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert main(words) == 0 and asked == ["reviews_any"] and rows_in(inside / "e") == whole
    asked.clear()
    assert main([*words, "--checkpoints", "1"]) == 0 and len(asked) == 4
    assert main([*words[:-1], "4", "--tasks", "other*"]) == 0 and len(asked) == 5
    assert main([*words[:-1], "4", "--tasks", "other*", "--decode", "false"]) == 0 and len(asked) == 6


def test_jobs_share_the_examples(inside, capsys):
    words = ["eval", "run", "--tasks", "reviews_good_", "reviews_write", "--results"]
    assert main([*words, str(inside / "alone")]) == 0
    for shard in ("2/3", "0/3"):
        assert main([*words, str(inside / "e"), "--shard", shard]) == 0
        assert "other jobs are not yet" in capsys.readouterr().err
        assert not (inside / "e" / "results.jsonl").exists()
    assert main([*words, str(inside / "e"), "--shard", "1/3"]) == 0
    alone, together = (sorted((inside / name / "run-2").glob("*.jsonl")) for name in ("alone", "e"))
    for one, other in zip(alone, together, strict=True):
        first, second = ([json.loads(line) for line in path.read_text().splitlines()] for path in (one, other))
        assert [record["example"] for record in second] == list(range(len(first)))
        for mine, theirs in zip(first, second, strict=True):
            numbers = [[record.pop("loss"), *record.pop("scores", [])] for record in (mine, theirs)]
            np.testing.assert_allclose(*numbers, rtol=1e-5)
            assert mine == theirs
    assert not list((inside / "e" / "run-2").glob("*-of-*"))


def test_jobs_that_run_at_once(inside, place):
    """In processes of their own; the last one to end, whichever it is, puts their shares together."""
    command = [sys.executable, "-m", "spanloom.cli.main", "eval", "run", "--results", str(inside), "--shard"]
    jobs = [subprocess.Popen([*command, f"{job}/2"], stdout=subprocess.DEVNULL) for job in range(2)]
    assert [job.wait(120) for job in jobs] == [0, 0]
    numbers = {}
    for path in (inside / "run-2").glob("*.jsonl"):
        numbers[path.stem] = [json.loads(line)["example"] for line in path.read_text().splitlines()]
    counts = {row["task"]: row["examples"] for row in rows_in(inside) if row["kind"] == "task"}
    assert numbers == {task: list(range(count)) for task, count in counts.items()} and len(numbers) == 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["run", "--tasks", "reviews_wrte"], 2, "--tasks reviews_wrte: the recipe has no such task; did you mean revi"),
        (["run", "--checkpoints", "5"], 1, "has no checkpoint 5: ask for 'last', 'best' or one of [1, 2]"),
        (["run", "--checkpoints", "first"], 2, "--checkpoints first: must be last, best, all, or steps"),
        (["hf"], 2, "hf is a Hugging Face folder, which names no tasks: spanloom eval FOLDER RECIPE"),
        (["own"], 2, "own is a model converted by Spanloom, which names no tasks: spanloom eval FOLDER RECIPE"),
        (["own", "prompted"], 1, "prompted needs --data"),
        (["hf", "prompted", "--checkpoints", "all"], 1, "prompted needs --data"),
        (["hf", "quickstart", "--checkpoints", "all"], 2, "--checkpoints chooses among those of a run directory"),
        (["run", "--shard", "2/2"], 2, "--shard 2/2: jobs are counted from 0"),
        (["run", "--max-examples", "-1"], 2, "--max-examples -1: must be 0 or more"),
        (["nowhere"], 1, "nowhere: does not exist"),
        (["run", "pretrain", *TEXT, "--heldout-share", "0"], 1, "nothing is held out of text: give the source"),
        (["hf", "quickstart", "--out", "OUT"], 1, "the recipe's vocabulary, Bytes(sentinels='huggingface'"),
    ],
)
def test_what_cannot_be_done_is_said(inside, words, code, said, capsys):
    assert main(["eval", *(str(inside) if word == "OUT" else word for word in words)]) == code
    assert said in capsys.readouterr().err


def test_results_of_somebody_else_stay(inside, capsys):
    foreign = inside / "results.csv"
    foreign.write_text("mine")
    assert main(["eval", "run", "--results", str(inside)]) == 1
    assert "results.csv is none that spanloom eval wrote; it stays: name another --results" in capsys.readouterr().err
    assert foreign.read_text() == "mine"


def test_the_mesh_of_a_run_is_taken_where_it_fits(capsys):
    assert mesh_here(Mesh(data=jax.device_count())) == Mesh(data=jax.device_count())
    assert capsys.readouterr().err == ""
    assert mesh_here(Mesh(fsdp=97, tensor=4)) == Mesh()
    assert "fsdp 97 x tensor 4 does not fit" in capsys.readouterr().err


def test_text_alone_has_losses_alone(inside, place, capsys):
    words = [*TEXT[:-1], str(inside), "--max-examples", "3", "--task.objective.inputs-length", "32"]
    assert main(["eval", "run", "pretrain", *words]) == 0
    (row,) = (row for row in rows_in(inside / "eval") if row["kind"] == "task")
    assert set(row) == {"checkpoint", "kind", "data_set", "template", "task", "examples", "heldout_loss"} | {
        "heldout_text_loss"
    }


def test_rows_that_a_template_leaves_out_are_told(inside, capsys):
    some = "{name: some, jinja: '{% if label %}{{text}} ||| yes{% endif %}'}"
    every = "{name: every, inputs: '{{text}}', targets: a}"
    none = "{name: none, jinja: '{{text}}'}"
    (inside / "p.yaml").write_text(f"dataset: reviews\ntemplates: [{some}, {every}, {none}]")
    words = ["hf", "prompted", "--data", "reviews=rows.jsonl", "--prompts", str(inside / "p.yaml"), "--start", "hf"]
    words += ["--inputs-length", "48", "--targets-length", "14", "--out", str(inside), "--whole", "--max-examples", "2"]
    why = "the held-out part of task 'reviews_none' is empty: all 100 rows were left out by its preprocessors: 100"
    for _ in ("the stores are built", "the stores are there"):
        assert main(["eval", *words]) == 0
        said = capsys.readouterr().err.splitlines()
        told = [line for line in said if "left out" in line and "reviews_none" not in line]
        assert told == ["data: held-out part of reviews_some: skipped: 66 left out by template 'some'"]
        assert any(why in line for line in said) and "passed over, as nothing is held out: reviews_none" in said
    assert main(["eval", *words, "--tasks", "reviews_none"]) == 1
    assert f"{why} left out by template 'none'; a template must give inputs" in " ".join(
        capsys.readouterr().err.split()
    )


def test_every_task_that_holds_nothing_out_has_its_reason():
    why = "the held-out part of task 'b' is empty: all 3 rows were left out"
    with pytest.raises(CommandError, match=rf"^{re.escape(why)}\nnothing is held out of a, c: give the source"):
        _refuse_without(["a", "b", "c"], [], {"b": why}, some=False)
    with pytest.raises(CommandError, match=rf"^{re.escape(why)}$"):
        _refuse_without(["b"], ["b"], {"b": why}, some=True)


def test_help_teaches(capsys, inside):
    assert main(["eval"]) == 2 and main(["eval", "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120 and "\n  spanloom eval runs/b " in text
    assert main(["eval", "run", "--help"]) == 0
    assert "--length-normalised {true,false}" in capsys.readouterr().out
