"""Results of a finished run: measured once, shown again at once, and never shown when they may have changed."""

import json
import shutil
from dataclasses import replace

import pytest
from tiny_training import tiny_run, write_text

from spanloom.cli import convert
from spanloom.cli.closing import RESULTS_FILE, close_run
from spanloom.evaluation import measure as measuring
from spanloom.settings.optimizer import Linear
from spanloom.settings.run import After
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

    monkeypatch.setattr(convert, "read_source", counted("read", convert.read_source))
    monkeypatch.setattr(measuring, "measure", counted("measure", measuring.measure))
    return made


def lines_of(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def close(run, directory, capsys):
    capsys.readouterr()
    close_run(run, directory)
    return capsys.readouterr().out


def test_the_second_time_nothing_is_measured(finished, calls, capsys):
    run, directory = finished
    (directory / RESULTS_FILE).unlink(missing_ok=True)
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
    path = directory / RESULTS_FILE
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
    (tmp_path / RESULTS_FILE).write_bytes((directory / RESULTS_FILE).read_bytes())
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
    (copy / RESULTS_FILE).unlink()
    (copy / "metrics.jsonl").write_bytes(b'{"kind": "train", "step": 1, "loss": 1.0}\n' + line + b"\n")
    assert close(run, copy, capsys).partition("what to try next")[0] == first.partition("what to try next")[0]


def test_text_that_changed_since_is_not_measured_as_if_it_were_the_runs(tmp_path, capsys):
    text = write_text(tmp_path / "a.txt")
    run = replace(tiny_run(text, 2), after=AFTER).resolve()
    assert train(run, tmp_path / "run")
    with (tmp_path / "a.txt").open("a") as file:
        file.write("one line more\n" * 50)
    said = close(run, tmp_path / "run", capsys)
    assert "the text has changed since the run learnt from it" in said and "bigram" not in said


def test_a_longer_run_is_offered_where_the_schedule_allows_it(finished, calls, capsys):
    run, directory = finished
    offer = f"spanloom train {directory} --steps 4"
    assert offer in close(run, directory, capsys)
    ended = replace(run, schedule=Linear(decay_steps=2, end_factor=0.0))
    assert offer not in close(ended, directory, capsys)
