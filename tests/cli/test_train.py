"""What `spanloom train` hands to the training loop; the loop itself is replaced, and tested elsewhere."""

import json
import sys
import types

import pytest
from bare_checkpoint import save_bare

from spanloom.cli.main import main
from spanloom.cli.recipe import read_run
from spanloom.scale.processes import ALONE
from spanloom.training.run_file import write_run

pytestmark = pytest.mark.short


class Loop(types.ModuleType):
    """Stands in for spanloom.training.loop: leaves a checkpoint of the last step, and remembers what it was given."""

    def __init__(self):
        super().__init__("spanloom.training.loop")
        self.calls = []
        self.finishes = True

    def train(self, run, directory, *, accepted=(), workers=1, crew=ALONE):
        self.calls.append((run, directory))
        write_run(run, directory)
        save_bare(directory, run.steps, run)
        return self.finishes


@pytest.fixture
def loop(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fake, closing = Loop(), types.ModuleType("spanloom.cli.closing")
    closing.closed = []
    closing.close_run = lambda run, directory, further=None: closing.closed.append(directory)
    fake.closed = closing.closed
    monkeypatch.setitem(sys.modules, "spanloom.training.loop", fake)
    monkeypatch.setitem(sys.modules, "spanloom.cli.closing", closing)
    return fake


def test_a_new_run_goes_to_runs_name_resolved(loop, tmp_path, capsys):
    assert main(["train", "quickstart", "--steps", "3"]) == 0
    ((run, directory),) = loop.calls
    assert str(directory) == "runs/quickstart"
    assert (run.steps, run.out, run.eval.batch_size) == (3, "runs/quickstart", run.batch_size)
    assert read_run(tmp_path / "runs" / "quickstart") == run
    assert (directory / "recipe.py").read_text().startswith('"""')
    assert loop.closed == [directory]
    assert "beginning in runs/quickstart" in capsys.readouterr().out


def test_the_same_command_goes_on(loop, capsys):
    argv = ["train", "quickstart", "--steps", "3", "--out", "a"]
    assert main(argv) == main(argv) == 0
    assert loop.calls[0] == loop.calls[1]
    assert "going on from step 3 in a" in capsys.readouterr().out


def test_a_run_directory_goes_on_with_its_own_settings(loop, tmp_path, monkeypatch):
    assert main(["train", "quickstart", "--steps", "3", "--out", "a", "--seed", "5", "--optimizer", "adafactor"]) == 0
    monkeypatch.chdir(tmp_path / "a")
    assert main(["train", str(tmp_path / "a"), "--steps", "2000"]) == 0
    first, second = loop.calls[0][0], loop.calls[1][0]
    assert (second.steps, second.seed, second.optimizer) == (2000, 5, first.optimizer)
    assert loop.calls[1][1] == tmp_path / "a"


def test_a_run_directory_with_another_out_is_repeated_there(loop, tmp_path):
    assert main(["train", "quickstart", "--steps", "3", "--out", "a"]) == 0
    assert main(["train", "a", "--out", "b", "--seed", "9"]) == 0
    assert str(loop.calls[1][1]) == "b"
    assert read_run(tmp_path / "b").seed == 9
    assert read_run(tmp_path / "a").seed == 0


def test_changed_settings(loop, tmp_path, capfd):
    argv = ["train", "quickstart", "--steps", "3", "--out", "a"]
    assert main(argv) == 0
    assert main([*argv, "--seed", "1", "--log.every", "7"]) == 1
    text = capfd.readouterr().err
    assert "a: settings that decide the result differ" in text
    assert "seed  0  ->  1" in text
    assert len(loop.calls) == 1
    assert main([*argv, "--seed", "1", "--accept-change", "seed"]) == 0
    assert read_run(tmp_path / "a").seed == 1
    assert main([*argv, "--seed", "2", "--fork", "b"]) == 0
    assert (str(loop.calls[-1][1]), loop.calls[-1][0].seed) == ("b", 2)
    assert read_run(tmp_path / "a").seed == 1
    # The fork goes on like any run.
    assert main(["train", "b", "--steps", "9"]) == 0
    assert (loop.calls[-1][0].seed, loop.calls[-1][0].steps) == (2, 9)


def test_free_settings_may_change_on_resume(loop):
    argv = ["train", "quickstart", "--steps", "3", "--out", "a"]
    assert main(argv) == 0
    free = ["--checkpoint.every", "2", "--eval.every", "3", "--log.every", "4", "--name", "x", "--after.fills", "0"]
    assert main([*argv, *free, "--steps", "8"]) == 0
    assert loop.calls[-1][0].steps == 8


def test_fewer_steps_than_were_done_are_refused(loop, tmp_path, capfd):
    argv = ["train", "quickstart", "--steps", "30", "--out", "a"]
    assert main(argv) == 0
    assert main([*argv[:2], "--steps", "20", "--out", "a"]) == 1
    assert main(["train", "a", "--steps", "20", "--fork", "b"]) == 1
    assert capfd.readouterr().err.count("a has done 30 steps, and 20 are asked for") == 2
    assert read_run(tmp_path / "a").steps == 30
    assert len(loop.calls) == 1
    assert not (tmp_path / "b").exists()


def test_settings_that_fail_with_their_data_bind_nobody(loop, tmp_path, monkeypatch):
    def fail(run, directory, **_):
        raise ValueError("bad data")

    good = loop.train
    argv = ["train", "quickstart", "--steps", "3", "--out", "a"]
    monkeypatch.setattr(loop, "train", fail)
    assert main([*argv, "--seed", "1"]) == 1
    monkeypatch.setattr(loop, "train", good)
    assert main([*argv, "--seed", "2", "--batch-size", "4"]) == 0
    monkeypatch.setattr(loop, "train", fail)
    assert main([*argv, "--seed", "3", "--batch-size", "4", "--accept-change", "seed"]) == 1
    assert main(["train", "a", "--seed", "4", "--fork", "b"]) == 1
    monkeypatch.setattr(loop, "train", good)
    assert main(["train", "a", "--steps", "5"]) == 0
    assert main(["train", "a", "--seed", "5", "--fork", "b"]) == 0
    assert [(run.seed, str(directory)) for run, directory in loop.calls] == [(2, "a"), (2, "a"), (5, "b")]


def test_pretrain_without_a_recipe_file(loop, tmp_path):
    argv = ["pretrain", "--text", "corpus/*.jsonl.gz", "more/*.txt", "--field", "text", "--model", "byt5_small"]
    assert main([*argv, "--out", "runs/a"]) == 0
    ((run, directory),) = loop.calls
    assert str(directory) == "runs/a"
    assert run.task.source.files == (f"{tmp_path}/corpus/*.jsonl.gz", f"{tmp_path}/more/*.txt")
    assert run.model.name == "byt5_small"
    assert main(["train", "runs/a"]) == 0
    assert loop.calls[1][0] == run


def test_a_recipe_of_ones_own(loop, tmp_path):
    (tmp_path / "mine.py").write_text("from spanloom.recipes.quickstart import recipe\n")
    assert main(["train", "mine.py", "--steps", "3"]) == 0
    assert str(loop.calls[0][1]) == "runs/mine"
    assert (tmp_path / "runs" / "mine" / "recipe.py").read_text() == "from spanloom.recipes.quickstart import recipe\n"
    entry = json.loads((tmp_path / "runs" / "mine" / "commands.jsonl").read_text())
    assert entry["command"] == ["spanloom", "train", "mine.py", "--steps", "3"]


def test_a_stopped_run_is_not_closed(loop):
    loop.finishes = False
    assert main(["train", "quickstart", "--steps", "3"]) == 0
    assert loop.closed == []


def test_extending_past_a_decay_to_zero_is_refused(loop, capfd):
    argv = ["train", "quickstart", "--steps", "3", "--out", "a", "--schedule", "linear"]
    assert main(argv) == 0
    assert main(["train", "a", "--steps", "9"]) == 1
    assert "the learning rate is 0 from schedule.decay_steps = 3 on" in capfd.readouterr().err
    assert main(["train", "a", "--steps", "9", "--schedule.decay-steps", "9"]) == 1
    more = ["--schedule.decay-steps", "9", "--accept-change", "schedule.decay_steps"]
    assert main(["train", "a", "--steps", "9", *more]) == 0


@pytest.mark.parametrize("command", ["train", "cache"])
def test_an_empty_out_is_no_directory(loop, capfd, command):
    assert main([command, "quickstart", "--out", ""]) == 2
    assert "--out is empty" in capfd.readouterr().err
    assert not loop.calls


@pytest.mark.parametrize("flag", ["--out", "--fork"])
def test_a_directory_whose_name_is_no_utf8_is_refused(loop, tmp_path, capfd, flag):
    name = b"caf\xe9".decode("utf-8", "surrogateescape")  # how Python has a byte that the locale cannot read
    assert main(["train", "quickstart", flag, str(tmp_path / name)]) == 1
    assert r"caf\udce9': a name that is no UTF-8" in capfd.readouterr().err
    assert not loop.calls
    assert not list(tmp_path.iterdir())
