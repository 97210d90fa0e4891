import dataclasses
import io
import json
import math
import random
from pathlib import Path

import pytest
from tiny_training import events, losses, same_arrays, tiny_run, write_text

from spanloom.cli.closing import close_run
from spanloom.evaluation import heldout
from spanloom.settings.run import After, Checkpoints, Evaluation
from spanloom.settings.stopping import Stopping
from spanloom.training import judge, loop
from spanloom.training.checkpoint_paths import latest, open_checkpoint
from spanloom.training.checkpoints import restore
from spanloom.training.chosen import chosen
from spanloom.training.facts import read_facts
from spanloom.training.patience import Patience
from spanloom.training.progress import PlainDisplay
from spanloom.training.start import find_start

EVERY = 2
STOPPING = Stopping(patience=3)
SCRIPT = {2: 5.0, 4: 4.0, 6: 4.2, 8: 3.9, 10: 4.0, 12: 3.95, 14: 3.9, 16: 3.0, 18: 2.0}
"""Held-out loss by step: the best of the first is that of step 8, and step 14 is the third that is not better."""


def run_of(text, steps=18, **changes):
    defaults = {
        "checkpoint": Checkpoints(every=EVERY),
        "eval": Evaluation(every=EVERY, max_batches=1),
        "stopping": STOPPING,
    }
    return tiny_run(text, steps, **{**defaults, **changes})


@pytest.mark.short
@pytest.mark.parametrize(
    ("script", "settings", "end"),
    [
        ([5, 4, 4, 4, 1], Stopping(patience=2), 4),
        ([5, 4, 3.9, 3.8, 3.7], Stopping(patience=2), None),
        ([5, 4, 3.99, 3.98, 1], Stopping(patience=2, min_improvement=0.05), 4),
        ([5, 4, 3.98, 3.94, 3.93, 3.92], Stopping(patience=2, min_improvement=0.05), 6),
        ([math.nan, math.nan], Stopping(patience=2), 2),
        ([5, 6, 7, 8], Stopping(), None),
    ],
)
def test_when_a_run_ends(script, settings, end):
    run = dataclasses.replace(tiny_run(Path("a.txt"), 100), eval=Evaluation(every=1), stopping=settings)
    patience, ended = Patience(), None
    for step, loss in enumerate(script, 1):
        patience = patience.after(step, float(loss), run)
        ended = ended or (step if patience.ended(settings) else None)
    assert ended == end
    assert Patience(**json.loads(json.dumps(patience.to_data()))).since == patience.since


@pytest.mark.short
def test_an_evaluation_counts_once_and_only_where_it_was_due():
    run = run_of(Path("a.txt"))
    patience = Patience().after(2, 5.0, run)
    assert patience.after(2, 4.0, run) == patience.after(3, 1.0, run) == patience.after(4, None, run) == patience


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("text") / "lines.txt")


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def scripted(monkeypatch):
    """Held-out losses are those of SCRIPT, by how many updates the weights have seen."""
    measured, at = heldout.heldout_by_task, {}
    evaluate = judge.Judge.evaluate

    def noting(self, state, step, saved=None):
        at["step"] = step
        return evaluate(self, state, step, saved)

    def scripted_losses(*args, **kwargs):
        found = measured(*args, **kwargs)
        return {task: {**values, "heldout_loss": SCRIPT[at["step"]]} for task, values in found.items()}

    monkeypatch.setattr(judge.Judge, "evaluate", noting)
    monkeypatch.setattr(judge, "heldout_by_task", scripted_losses)


def train(run, directory):
    stream = io.StringIO()
    finished = loop.train(run, directory, display=PlainDisplay(stream))
    return finished, stream.getvalue()


class KilledError(Exception):
    pass


def kill_at(monkeypatch, step):
    """The next run ends without a word at a step's metrics, saves that are under way but for this one included."""
    add = loop.Recorder.add

    def killed(self, at, *rest):
        if at == step:
            raise KilledError
        return add(self, at, *rest)

    monkeypatch.setattr(loop.Recorder, "add", killed)
    return lambda: monkeypatch.setattr(loop.Recorder, "add", add)


def test_a_run_ends_early_says_why_and_counts_as_finished(text, tmp_path, scripted, capsys):
    finished, said = train(run_of(text), tmp_path)
    assert finished and latest(tmp_path).name == "14"
    assert (
        "stopped early after step 14: in 3 evaluations the held-out loss was not better (the best is 3.9000, of "
        in said
    )
    assert "step 8). To train on: --stopping.patience N" in said
    assert chosen(tmp_path) == open_checkpoint(tmp_path, "best") == tmp_path / "checkpoints" / "8"
    assert find_start(run_of(text, start=str(tmp_path))).path.name == "8"
    before = losses(tmp_path)
    close_run(run_of(text, after=After(fills=0, export=False)).resolve(), tmp_path)
    assert f"results of the best checkpoint, {tmp_path / 'checkpoints' / '8'}" in capsys.readouterr().out
    assert losses(tmp_path) == before
    assert [(e["step"], e["of_step"]) for e in events(tmp_path) if e["kind"] == "baselines"] == [(14, 8)]
    finished, said = train(run_of(text), tmp_path)
    assert finished and "stopped early after step 14" in said and "compiling" not in said
    assert losses(tmp_path) == before
    finished, said = train(run_of(text, stopping=Stopping(patience=4)), tmp_path)
    assert finished and latest(tmp_path).name == "18" and chosen(tmp_path).name == "18"


def test_wherever_a_run_is_killed_it_ends_at_the_same_step_with_the_same_weights(text, tmp_path, scripted, monkeypatch):
    run = run_of(text, checkpoint=Checkpoints(every=3))
    train(run, tmp_path / "straight")
    places = [3, 7, 9, 11, 13, 14]
    random.Random(0).shuffle(places)
    for step in sorted(places[:4]):
        undo = kill_at(monkeypatch, step)
        with pytest.raises(KilledError):
            train(run, tmp_path / "killed")
        undo()
    assert train(run, tmp_path / "killed")[0]
    assert losses(tmp_path / "killed") == losses(tmp_path / "straight")
    ours, theirs = (restore(latest(tmp_path / name)) for name in ("killed", "straight"))
    assert ours.step == theirs.step == 14 and same_arrays(ours.params, theirs.params)
    assert ours.facts.patience == theirs.facts.patience == {"best": 3.9, "best_step": 8, "since": 3, "counted": 14}


def test_an_evaluation_that_a_stop_cut_off_is_counted_when_it_is_made_up_for(text, tmp_path, scripted, monkeypatch):
    run, evaluate = run_of(text, steps=14), judge.Judge.evaluate
    monkeypatch.setattr(judge.Judge, "evaluate", lambda self, state, step, saved=None: None)
    train(dataclasses.replace(run, steps=2), tmp_path)
    assert read_facts(latest(tmp_path)).patience["counted"] == 0
    monkeypatch.setattr(judge.Judge, "evaluate", evaluate)
    train(dataclasses.replace(run, steps=2), tmp_path)
    assert (tmp_path / "checkpoints" / "2" / "heldout.json").exists()
    train(run, tmp_path)
    assert read_facts(latest(tmp_path)).patience == {"best": 3.9, "best_step": 8, "since": 3, "counted": 14}


def test_the_best_goes_by_the_task_that_is_named(text, tmp_path):
    other = write_text(tmp_path / "other.txt", seed=7)
    task = dataclasses.replace(tiny_run(other, 1).task, name="other")
    evaluation = Evaluation(every=EVERY, max_batches=1, also=(task,))
    run = run_of(text, steps=4, eval=evaluation, checkpoint=Checkpoints(every=EVERY, best_task="other"))
    _, said = train(run, tmp_path / "run")
    measured = {(e["task"], e["step"]): e["heldout_loss"] for e in events(tmp_path / "run") if e["kind"] == "eval"}
    assert {task for task, _ in measured} == {"lines", "other"}
    assert read_facts(latest(tmp_path / "run")).heldout_loss == measured["other", 4]
    assert "bits), of other" in said
    with pytest.raises(ValueError, match=r"checkpoint.best_task is 'othr', which is no task of this run; did you mean"):
        dataclasses.replace(run, checkpoint=Checkpoints(best_task="othr")).resolve()
