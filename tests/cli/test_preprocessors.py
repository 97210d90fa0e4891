"""A recipe with functions of its own, as users run it: trained, killed, gone on with, and edited."""

import json
import os
import signal
import subprocess
import sys

import pytest
from tiny_training import last_step, losses, wait_until

RECIPE = '''"""Words backwards."""

from pathlib import Path

from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.run import Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import PairFiles, Task

SIGN = "turn: "


def turned(example):
    return {"inputs": SIGN + example["inputs"], "targets": example["targets"][::-1]}


def long_enough(example):
    return len(example["targets"]) > 2


def mixed(example, rng):
    words = example["inputs"].split()
    rng.shuffle(words)
    return {**example, "inputs": " ".join(words)}


def first_letters(targets, predictions):
    return {"first_letters": sum(t[:1] == p[:1] for t, p in zip(targets, predictions, strict=True)) / len(targets)}


def recipe(steps: int = 12) -> Run:
    source = PairFiles((str(Path(__file__).with_name("pairs.tsv")),), heldout_share=0.1)
    return Run(
        name="words",
        task=Task("words", source, objective=Supervised(40, 12), preprocessors=(turned, long_enough, mixed),
                  metrics=(first_letters,)),
        model=Model(384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1),
        optimizer=AdamW(1e-2),
        schedule=Constant(0),
        batch_size=4,
        steps=steps,
        checkpoint=Checkpoints(every=4),
        eval=Evaluation(every=4, max_batches=2),
        log=Logging(every=1, tensorboard=False),
    )
'''
CODE = "import sys; from spanloom.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "words.py").write_text(RECIPE)
    lines = (f"one {i} two\tt{i * 7}\n" for i in range(300))
    (tmp_path / "pairs.tsv").write_text("inputs\ttargets\n" + "".join(lines))
    return tmp_path / "words.py"


def run(*argv, cwd):
    command = [sys.executable, "-c", CODE, "train", *map(str, argv)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ})
    return done.returncode, done.stdout + done.stderr


def test_a_recipe_with_its_own_functions_is_trained_killed_and_gone_on_with(recipe, tmp_path):
    code, said = run(recipe, "--out", "whole", cwd=tmp_path)
    assert code == 0, said
    assert "left out by long_enough" in said and "metrics on " in said and "first_letters " in said
    command = [sys.executable, "-c", CODE, "train", str(recipe), "--out", "cut", "--steps", "12"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        assert wait_until(process, lambda: last_step(tmp_path / "cut") >= 6), (tmp_path / "log").read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()
    code, said = run("cut", cwd=tmp_path)  # by the run directory: the recipe is not run, its file is read
    assert code == 0, said
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    measured = [json.loads(line) for line in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    assert [one["kind"] for one in measured if "first_letters" in one] == ["metrics"]


def test_an_edited_function_is_refused_until_it_is_accepted(recipe, tmp_path):
    code, said = run(recipe, "--out", "run", "--steps", "4", cwd=tmp_path)
    assert code == 0, said
    recipe.write_text(RECIPE.replace("steps: int = 12", "steps: int = 6"))
    code, said = run(recipe, "--out", "run", cwd=tmp_path)
    assert code == 0 and "going on from step 4" in said, said  # nothing that the functions use was edited
    recipe.write_text(RECIPE.replace("turn: ", "other: "))
    before = sorted((tmp_path / "run" / "stores").rglob("*.arrow"))
    contents = [path.read_bytes() for path in before]
    for words in ((recipe, "--out", "run"), ("run",)):
        code, said = run(*words, "--steps", "8", cwd=tmp_path)
        assert code == 1
        assert "the preprocessors of task 'words' are not those" in said and "the code of turned was edited" in said
        assert "--accept-change task.preprocessors" in said and "Traceback" not in said
    assert [path.read_bytes() for path in before] == contents
    code, said = run(recipe, "--out", "run", "--steps", "8", "--accept-change", "task.preprocessors", cwd=tmp_path)
    assert code == 0, said
    assert "is built anew: changed: the preprocessors (the code of turned was edited)" in said


def test_other_preprocessors_are_a_change_of_settings(recipe, tmp_path):
    assert run(recipe, "--out", "run", "--steps", "2", cwd=tmp_path)[0] == 0
    recipe.write_text(RECIPE.replace("(turned, long_enough, mixed)", "(turned, mixed)"))
    code, said = run(recipe, "--out", "run", "--steps", "4", cwd=tmp_path)
    assert code == 1 and "task.preprocessors  (turned, long_enough, mixed)  ->  (turned, mixed)" in said
    recipe.write_text(RECIPE.replace("metrics=(first_letters,)", "metrics=()"))
    code, said = run(recipe, "--out", "run", "--steps", "4", cwd=tmp_path)
    assert code == 0 and "exact match on " in said, said


def test_an_error_of_the_users_code_is_one_message(recipe, tmp_path):
    recipe.write_text(RECIPE.replace('example["targets"][::-1]', 'example["target"][::-1]'))
    code, said = run(recipe, "--out", "run", cwd=tmp_path)
    line = RECIPE.splitlines().index(
        '    return {"inputs": SIGN + example["inputs"], "targets": example["targets"][::-1]}'
    )
    assert code == 1 and "Traceback" not in said
    assert f"task 'words', preprocessor turned, example 0: KeyError: 'target' (at {recipe}:{line + 1}: return" in said
    recipe.write_text(RECIPE.replace("preprocessors=(turned, long_enough, mixed)", "preprocessors=(lambda x: x,)"))
    code, said = run(recipe, "--out", "run", cwd=tmp_path)
    assert code == 1 and "Traceback" not in said
    assert f"{recipe}:" in said and "a lambda has no name by which other processes could find it" in said


def test_a_recipe_file_that_is_gone_is_said(recipe, tmp_path):
    assert run(recipe, "--out", "run", "--steps", "2", cwd=tmp_path)[0] == 0
    recipe.unlink()
    code, said = run("run", "--steps", "4", cwd=tmp_path)
    assert code == 1 and f"{recipe}, whose functions this run uses, cannot be read" in said and "Traceback" not in said
