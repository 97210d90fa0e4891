import dataclasses
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import jax
import pytest
from tiny_training import MODEL, events, losses, same_arrays, tiny_run, write_text

from spanloom.optim.parameter_rms import KINDS
from spanloom.scale.processes import Crew
from spanloom.settings.run import Checkpoints, Evaluation, Logging
from spanloom.settings.run_layout import TRACKED
from spanloom.training import loop
from spanloom.training.checkpoint_paths import latest
from spanloom.training.checkpoints import restore
from spanloom.training.progress import PlainDisplay
from spanloom.training.trackers import MissingTrackerError, asked_for, check_trackers, tracked_as


class Package:
    """Stands in for W&B or trackio."""

    def __init__(self):
        self.runs = []

    def init(self, **options):
        run = SimpleNamespace(options=options, logged=[], finished=False)
        run.log = lambda values, step: run.logged.append((step, values))
        run.finish = lambda: setattr(run, "finished", True)
        self.runs.append(run)
        return run


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(params=["wandb", "trackio"])
def package(request, monkeypatch):
    package = Package()
    package.name = request.param
    monkeypatch.setitem(sys.modules, request.param, package)
    return package


def run_of(text, steps, **log):
    return tiny_run(
        text,
        steps,
        model=dataclasses.replace(MODEL, dropout=0.0),
        checkpoint=Checkpoints(every=2),
        eval=Evaluation(every=2, max_batches=1),
        log=Logging(**{"every": 1, "tensorboard": False, **log}),
    )


def train(run, directory):
    stream = io.StringIO()
    assert loop.train(run, directory, display=PlainDisplay(stream))
    return stream.getvalue()


@pytest.mark.short
def test_only_what_is_asked_for_is_imported_and_a_name_is_a_project(tmp_path, monkeypatch):
    assert asked_for(run_of(tmp_path, 1)) == {}
    assert asked_for(run_of(tmp_path, 1, wandb=True, trackio="mine")) == {"wandb": "spanloom", "trackio": "mine"}
    monkeypatch.setitem(sys.modules, "wandb", None)
    check_trackers(run_of(tmp_path, 1))
    with pytest.raises(MissingTrackerError, match=r"--log.wandb needs .*pip install 'spanloom\[wandb\]'"):
        check_trackers(run_of(tmp_path, 1, wandb=True))


@pytest.mark.short
def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace())
    with pytest.raises(MissingTrackerError):
        check_trackers(run_of(tmp_path, 1, wandb="x"))


@pytest.mark.short
def test_a_run_keeps_its_name_where_it_goes_on_and_has_a_new_one_where_it_begins(tmp_path):
    run = dataclasses.replace(run_of(tmp_path, 1), name="Ein Lauf/1")
    first = tracked_as(run, tmp_path, 0)
    assert first.startswith("Ein-Lauf-1-") and (tmp_path / TRACKED).read_text() == first
    assert tracked_as(run, tmp_path, 5) == tracked_as(run, tmp_path, 7) == first
    assert tracked_as(run, tmp_path, 0) != first
    (tmp_path / "fork").mkdir()
    assert tracked_as(run, tmp_path / "fork", 5) != first


def test_a_run_and_its_resume_are_one_run_there(package, text, tmp_path):
    train(run_of(text, 2, **{package.name: True}), tmp_path)
    train(run_of(text, 4, **{package.name: True}), tmp_path)
    first, second = package.runs
    assert first.options["project"] == "spanloom" and first.options["resume"] == "allow"
    assert first.options["name"] == second.options["name"]
    assert (
        first.options.get("id")
        == second.options.get("id")
        == (first.options["name"] if package.name == "wandb" else None)
    )
    assert first.options["config"]["batch_size"] == 4 and first.options["config"]["parameters"] > 0
    assert first.finished and second.finished
    logged = {
        (step, name): value for run in package.runs for step, values in run.logged for name, value in values.items()
    }
    for (kind, step), value in losses(tmp_path).items():
        assert logged[step, "train/loss" if kind == "train" else "eval/lines/heldout_loss"] == value
    assert {"train/eta", "train/mfu", "train/memory_in_use", "train/data_wait"} <= {name for _, name in logged}


@pytest.mark.parametrize("fails", ["init", "log", "finish"])
def test_what_fails_there_is_said_once_and_ends_nothing(package, text, tmp_path, monkeypatch, fails):
    def fail(*args, **more):
        raise ConnectionError("nobody answers\nat all")

    if fails == "init":
        monkeypatch.setattr(package, "init", fail)
    else:
        whole = package.init
        monkeypatch.setattr(package, "init", lambda **options: setattr(run := whole(**options), fails, fail) or run)
    said = train(run_of(text, 3, **{package.name: True}), tmp_path)
    assert said.count(f"warning: {package.name} failed (nobody answers); training goes on") == 1
    assert said.count("failed") == 1
    assert len(losses(tmp_path)) == 3 + 2


def test_only_the_first_of_several_processes_logs(package, text, tmp_path, monkeypatch):
    """The others do not even import it."""
    train(run_of(text, 2), tmp_path)
    monkeypatch.setitem(sys.modules, package.name, None)
    writer = create_autospec(loop.CheckpointWriter, instance=True)  # whatever else the loop asks of it, it has
    monkeypatch.setattr(loop, "CheckpointWriter", lambda *args: writer)
    second = Crew(process=1, processes=2)
    assert loop.train(run_of(text, 4, **{package.name: True}), tmp_path, crew=second)
    assert [call.args[1].step for call in writer.save.call_args_list] == [4] and not (tmp_path / TRACKED).exists()
    with pytest.raises(MissingTrackerError):
        loop.train(run_of(text, 6, **{package.name: True}), tmp_path)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from tiny_training import tiny_run, train
from spanloom.settings.run import Checkpoints, Evaluation, Logging
for steps in (2, 4):
    log = Logging(every=1, tensorboard=False, **{{sys.argv[1]: "project"}})
    seldom = {{"checkpoint": Checkpoints(every=2), "eval": Evaluation(every=2, max_batches=1)}}
    run = tiny_run(Path(sys.argv[2]), steps, **seldom, log=log)
    print(train(run, Path(sys.argv[3])))
"""


def train_apart(name, text, directory, environment):
    """Two steps, and two more, in a process of its own: packages read their environment when they are imported."""
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", script, name, str(text), str(directory)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout
    return done.stdout


def test_trackio_itself_keeps_a_run_and_its_resume_as_one(text, tmp_path):
    pytest.importorskip("trackio")
    train_apart("trackio", text, tmp_path / "run", {"TRACKIO_DIR": str(tmp_path / "kept"), "HF_HUB_OFFLINE": "1"})
    (database,) = (tmp_path / "kept").glob("project*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics order by id").fetchall()
    assert {name for name, _, _ in rows} == {(tmp_path / "run" / TRACKED).read_text()}
    kept = {step: values["train/loss"] for _, step, text in rows if "train/loss" in (values := json.loads(text))}
    assert kept == {step: value for (kind, step), value in losses(tmp_path / "run").items() if kind == "train"}
    assert list(kept) == [1, 2, 3, 4]


def test_wandb_itself_needs_no_network_and_no_account(text, tmp_path):
    pytest.importorskip("wandb")
    train_apart("wandb", text, tmp_path / "run", {"WANDB_MODE": "offline", "WANDB_SILENT": "true"})
    identity = (tmp_path / "run" / TRACKED).read_text()
    kept = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{identity}"))
    assert kept and all(next(folder.glob("run-*.wandb")).stat().st_size > 0 for folder in kept)


def test_rms_of_parameters_come_every_so_many_steps_and_change_nothing(text, tmp_path):
    run = run_of(text, 6)
    train(run, tmp_path / "without")
    measured = run_of(text, 6, parameters=2)
    train(dataclasses.replace(measured, steps=4), tmp_path / "with")
    train(measured, tmp_path / "with")
    assert losses(tmp_path / "with") == losses(tmp_path / "without")
    ends = [restore(latest(tmp_path / name)).params for name in ("with", "without")]
    assert same_arrays(*ends)
    found = [event for event in events(tmp_path / "with") if event["kind"] == "parameters"]
    told = {event["step"]: event for event in found}
    assert len(found) == len(told)
    assert list(told) == [2, 4, 6]
    line = told[6]["encoder/layers_1/mlp/wo/kernel"]
    assert tuple(line) == KINDS and all(value > 0 for value in line.values())


def test_the_program_that_measures_parameters_is_compiled_before_the_first_step(text, tmp_path, monkeypatch):
    compiled, at_step = [], {}
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **more: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    original = loop.Recorder.add

    def add(self, step, metrics):
        original(self, step, metrics)
        at_step[step] = len(compiled), "parameters" in metrics

    monkeypatch.setattr(loop.Recorder, "add", add)
    run = run_of(text, 7, parameters=3)
    train(dataclasses.replace(run, eval=Evaluation(every=100), checkpoint=Checkpoints(every=100)), tmp_path)
    assert [step for step, (_, measured) in at_step.items() if measured] == [3, 6]
    assert at_step[1][0] == at_step[7][0]
