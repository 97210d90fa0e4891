"""The SkyPilot task file: its documented fields, and a shell that takes its commands as they were meant."""

import json
import os
import subprocess

import pytest
from launch_stand_ins import executable

from spanloom.cli.main import main

yaml = pytest.importorskip("yaml")
FIELDS = {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "setup", "run"}
"""Of the documented ones, those that a task of this kind may have."""
HOSTILE = "it's $(touch hostile)\n  : {x}"


@pytest.fixture
def made(home, capsys):
    """The task, its folder, and what was said."""
    words = ["--on", "sky:2", "--out", "/bucket/out", "--env", "HF_TOKEN", "--extras", "s3", "--text", HOSTILE]
    assert main(["launch", "recipe.py", *words]) == 0
    (file,) = [name for name in os.listdir() if name.endswith(".sky.yaml")]
    with open(file) as opened:
        return yaml.safe_load(opened), file.removesuffix(".yaml"), capsys.readouterr().out


def test_the_task_has_documented_fields_alone(made):
    task, folder, said = made
    assert task.keys() <= FIELDS
    assert task["num_nodes"] == 2 and task["workdir"] == f"./{folder}" and task["secrets"] == {"HF_TOKEN": None}
    assert isinstance(task["resources"]["accelerators"], str)
    assert "--secret HF_TOKEN" in said and f"{folder}.yaml" in said


def test_what_is_sent_has_the_recipe_spanloom_and_the_lock(made):
    _, folder, _ = made
    assert os.path.isfile(f"{folder}/code/recipe.py") and os.path.isfile(f"{folder}/package/spanloom/cli/main.py")
    with open(f"{folder}/requirements.txt") as file:
        assert "s3fs>=2024.6\n" in file.readlines()
    assert os.path.getsize(f"{folder}/constraints.txt") > 100


def test_a_dry_run_shows_the_task_and_writes_nothing(home, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "s3cr3t")
    words = ["--on", "sky:2", "--out", "/bucket/out", "--env", "HF_TOKEN", "--text", HOSTILE, "--dry-run"]
    assert main(["launch", "recipe.py", *words]) == 0
    said = capsys.readouterr().out
    task = yaml.safe_load(said)
    assert task["num_nodes"] == 2 and "# All nodes must share" in said and "sky launch" in said
    assert "s3cr3t" not in said and {*os.listdir()} - {"__pycache__"} == {"recipe.py"}


def test_a_bucket_is_mounted_for_the_run_directory(home, capsys):
    words = ["--on", "sky:2", "--out", "gs://my-bucket/runs/a", "--text", "x", "--dry-run"]
    assert main(["launch", "recipe.py", *words]) == 0
    said = capsys.readouterr().out
    task = yaml.safe_load(said)
    assert task["file_mounts"] == {"/mnt/my-bucket": {"source": "gs://my-bucket", "mode": "MOUNT"}}
    assert "--out /mnt/my-bucket/runs/a" in task["run"] and task.keys() <= FIELDS
    assert "gcloud storage buckets create gs://my-bucket --location REGION" in said


def test_a_shell_starts_each_node_with_its_number_and_the_first_ones_address(made, home, tmp_path):
    task, folder, _ = made
    (home / ".spanloom-environment" / "bin").mkdir(parents=True)
    os.rename(folder, home / "sky_workdir")
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    executable(home / ".spanloom-environment/bin/python", f"#!/bin/sh\nexec python3 -c '{program}' \"$@\"\n")
    sky = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"}
    place = {"cwd": home / "sky_workdir", "env": {**os.environ, **sky}}
    done = subprocess.run(["bash", "-c", task["run"]], capture_output=True, text=True, **place)
    words = json.loads(done.stdout)
    assert words[:5] == ["-P", "-m", "spanloom.cli.main", "train", f"{home}/sky_workdir/code/recipe.py"]
    assert words[5:7] == ["--text", HOSTILE] and words[7:9] == ["--out", "/bucket/out"]
    together = ["--processes", "2", "--process", "1", "--coordinator", "10.0.0.1:8476"]
    assert words[9:15] == together
    assert subprocess.run(["bash", "-n", "-c", task["setup"]]).returncode == 0
    assert not list(home.rglob("hostile"))
