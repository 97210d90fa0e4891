"""Results of a finished run: measured once, shown again at once, and never shown when they may have changed."""

import json
import os
import shlex
import shutil
from dataclasses import replace

import pytest
from tiny_training import WORDS, tiny_run, write_text

from spanloom.cli.closing import close_run
from spanloom.cli.main import main
from spanloom.pipeline.data import open_data
from spanloom.settings.objectives import Supervised
from spanloom.settings.optimizer import Linear
from spanloom.settings.run import After, Checkpoints, Evaluation
from spanloom.settings.task import PairFiles, Task
from spanloom.training import checkpoint_paths, read_model
from spanloom.training import finished as finished_runs
from spanloom.training.finished import results_file
from spanloom.training.loop import train

AFTER = After(fills=2, export=False)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("closing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLOOM_CACHE", "")
        run = replace(tiny_run(write_text(directory / "a.txt"), 2), after=AFTER).resolve()
        assert train(run, directory / "run")
    return run, directory / "run"


@pytest.fixture
def calls(monkeypatch):
    """What was done anew: weights read, results measured."""
    made = []

    def counted(name, function):
        def call(*args, **kwargs):
            made.append(name)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(read_model, "read_model", counted("read", read_model.read_model))
    monkeypatch.setattr(finished_runs, "measure", counted("measure", finished_runs.measure))
    return made


def lines_of(directory):
    """But for when they were written."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "time"} for line in lines]


def close(run, directory, capsys):
    capsys.readouterr()
    close_run(run, directory)
    return capsys.readouterr().out


def test_the_second_time_nothing_is_measured(finished, calls, capsys):
    run, directory = finished
    (directory / results_file("")).unlink(missing_ok=True)
    first = close(run, directory, capsys)
    assert calls == ["read", "measure"]
    assert "bigram model" in first
    assert "2. " in first
    before = lines_of(directory)
    assert train(run, directory)  # the whole command again: the loop takes the line of the results away
    calls.clear()
    assert close(run, directory, capsys) == first
    assert calls == []
    assert lines_of(directory) == before
    assert [line["kind"] for line in before].count("baselines") == 1


@pytest.mark.parametrize("content", [None, b"", b"{", b"\x00\xff", b'{"key": "x"}'])
def test_what_is_damaged_or_absent_is_measured_anew(finished, calls, capsys, content):
    run, directory = finished
    first = close(run, directory, capsys)
    calls.clear()
    path = directory / results_file("")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert close(run, directory, capsys) == first
    assert calls == ["read", "measure"]


def test_what_decides_the_results_is_looked_at(finished, calls, capsys):
    run, directory = finished
    close(run, directory, capsys)
    others = [
        replace(run, after=replace(AFTER, fills=1)),
        replace(run, eval=replace(run.eval, max_batches=1)),
        replace(run, eval=replace(run.eval, batch_size=2)),
    ]
    for other in others:
        calls.clear()
        close(other, directory, capsys)
        assert calls == ["read", "measure"]
    calls.clear()
    close(replace(others[-1], log=replace(run.log, every=7), steps=9), directory, capsys)
    assert calls == []


def test_other_weights_of_the_same_step_are_measured(finished, calls, capsys, tmp_path):
    run, directory = finished
    first = close(run, directory, capsys)
    other = replace(run, seed=5)
    assert train(other, tmp_path)
    (tmp_path / results_file("")).write_bytes((directory / results_file("")).read_bytes())
    calls.clear()
    assert close(other, tmp_path, capsys) != first
    assert calls == ["read", "measure"]


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\x00 garbage",
        b"[]",
        b'{"kind": "eval", "step": 2, "task": "lines"}',
        b'{"kind": "eval", "step": 2, "task": "lines", "heldout_loss": null, "heldout_text_loss": 1}',
    ],
)
def test_damaged_metrics_are_measured_anew(finished, capsys, tmp_path, line):
    run, directory = finished
    first = close(run, directory, capsys)
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / results_file("")).unlink()
    (copy / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1, "loss": 1.0}\n' + line + b"\n")
    assert close(run, copy, capsys).partition("what to try next")[0] == first.partition("what to try next")[0]


def test_what_became_of_the_text_since_is_nothing_to_a_finished_run(tmp_path, capsys):
    text = write_text(tmp_path / "a.txt")
    run = replace(tiny_run(text, 2), after=AFTER).resolve()
    directory = tmp_path / "run"
    assert train(run, directory)
    first, stores = close(run, directory, capsys), files_of(directory / "stores")
    assert "bigram" in first
    for change in (lambda: write_text(text, seed=1), lambda: text.write_bytes(b"\xff"), text.unlink):
        change()
        (directory / results_file("")).unlink()
        assert close(run, directory, capsys) == first
        assert files_of(directory / "stores") == stores
    write_text(text, seed=1)
    open_data(run, directory)
    stores = files_of(directory / "stores")
    said = close(replace(run, after=replace(AFTER, export=True)), directory, capsys)
    assert "the stores no longer hold the text that the run learnt from" in said and "bigram" not in said
    assert "parity: weights equal" in said
    assert files_of(directory / "stores") == stores
    shutil.rmtree(directory / "stores")
    assert "nothing is measured" in close(run, directory, capsys)
    assert not (directory / "stores").exists()


def files_of(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_longer_run_is_offered_where_the_schedule_allows_it(finished, calls, capsys):
    run, directory = finished
    offer = f"spanloom train {directory} --steps 4"
    assert offer in close(run, directory, capsys)
    ended = replace(run, schedule=Linear(decay_steps=2, end_factor=0.0))
    assert offer not in close(ended, directory, capsys)


def commands(said):
    """The commands offered, as their words."""
    lines = said.partition("what to try next:")[2].splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.strip()]


def test_the_line_to_fill_is_of_the_held_out_text_and_can_be_filled(finished, capsys):
    run, directory = finished
    (offer,) = (words for words in commands(close(run, directory, capsys)) if words[0] == "fill")
    line = offer[-1]
    assert line.count("<mask>") == 1
    assert set(line.split()) - {"<mask>"} <= set(WORDS.split())
    assert main(offer) == 0
    assert json.loads(capsys.readouterr().out)["text"] == line


def test_what_is_offered_after_pairs_works(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SPANLOOM_CACHE", "")
    (tmp_path / "a.tsv").write_text("".join(f"in {i}\tout {i}\n" for i in range(60)))
    task = Task("pairs", PairFiles((str(tmp_path / "a.tsv"),), (), 0.2, "0", "1"), objective=Supervised())
    run = tiny_run(tmp_path, 4, task=task, eval=Evaluation(every=1), checkpoint=Checkpoints(every=1, keep=5))
    run = replace(run, after=AFTER, out=str(tmp_path / "run")).resolve()
    assert train(run, tmp_path / "run")
    monkeypatch.setattr(checkpoint_paths, "heldout_loss", lambda path: 1.0 if path.name == "2" else 9.0)
    judge, write, train_on, convert = commands(close(run, tmp_path / "run", capsys))
    assert judge == ["eval", str(tmp_path / "run")] and write[:2] == ["generate", str(tmp_path / "run")]
    assert train_on == ["train", str(tmp_path / "run"), "--steps", "8"]
    assert main(convert) == 0
    assert (tmp_path / "run-best" / "README.md").is_file()
    assert main([*train_on, "--log.tensorboard", "no"]) == 0


def test_an_export_is_made_once_and_again_where_another_model_took_its_place(finished, calls, capsys, tmp_path):
    run, directory = finished
    run, copy = replace(run, after=replace(AFTER, export=True)), tmp_path / directory.name
    shutil.copytree(directory, copy)
    assert "parity: weights equal" in close(run, copy, capsys)
    (copy / "huggingface" / "README.md").write_text("mine")
    moved = tmp_path / "moved" / directory.name
    moved.parent.mkdir()
    shutil.move(copy, moved)
    assert "huggingface holds the model" in close(run, moved, capsys)
    assert (moved / "huggingface" / "README.md").read_text() == "mine"
    os.utime(moved / "huggingface" / "spanloom.json", (1, 1))
    assert "huggingface holds the model" in close(run, moved, capsys), "times tell nothing: copies have new ones"
    other = tmp_path / directory.name / "again"
    assert train(replace(run, seed=5), other)
    assert main(["convert", str(other), str(moved / "huggingface"), "--to", "hf", "--overwrite"]) == 0
    assert "parity: weights equal" in close(run, moved, capsys)


def test_a_folder_in_the_place_of_the_export_stays_as_it_is(finished, capsys, tmp_path):
    run, directory = finished
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    (copy / "huggingface").mkdir()
    (copy / "huggingface" / "mine.txt").write_text("mine")
    said = close(replace(run, after=replace(AFTER, export=True)), copy, capsys)
    assert "not exported:" in said and "stays as it is" in said and "what to try next" in said
    assert [path.name for path in (copy / "huggingface").iterdir()] == ["mine.txt"]
