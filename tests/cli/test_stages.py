"""Runs that follow one another on the command line; the loop is replaced, and tested elsewhere."""

import json
import sys
import types

import pytest
from bare_checkpoint import save_bare

from spanloom.cli.flags import Resuming, parse
from spanloom.cli.main import main
from spanloom.cli.recipe import find, read_stages
from spanloom.cli.stages import resolved_runs
from spanloom.training.run_file import write_run

pytestmark = pytest.mark.short

RECIPE = '''
"""Languages."""
from dataclasses import replace
from spanloom.recipes.quickstart import recipe as one
from spanloom.settings.run import Run

def recipe(names: tuple[str, ...] = ("en", "de"), steps: int = 3) -> list[Run]:
    run = one()
    return [replace(run, name=name, steps=steps, task=replace(run.task, name=name)) for name in names]
'''


class Loop(types.ModuleType):
    """Stands in for spanloom.training.loop: leaves a checkpoint of the last step, and remembers what it was given."""

    def __init__(self):
        super().__init__("spanloom.training.loop")
        self.calls = []
        self.stops_in = ""

    def train(self, run, directory, **options):
        self.calls.append((directory.name, run))
        write_run(run, directory)
        if directory.name == self.stops_in:
            return False
        place = save_bare(directory, run.steps, run)
        lines = [{"kind": "eval", "step": run.steps, "task": t.name, "heldout_loss": 2.5} for t in run.tasks]
        (place.parent.parent / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return True


@pytest.fixture
def loop(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "langs.py").write_text(RECIPE)
    fake, closing = Loop(), types.ModuleType("spanloom.cli.closing")
    fake.closed = closed = []
    closing.close_run = lambda run, directory, further=None: closed.append((directory.name, further))
    monkeypatch.setitem(sys.modules, "spanloom.training.loop", fake)
    monkeypatch.setitem(sys.modules, "spanloom.cli.closing", closing)
    return fake


def names(loop):
    return [name for name, _ in loop.calls]


def command(*flags, recipe="langs.py"):
    return parse(find(recipe), list(flags), "spanloom train", Resuming)


def test_one_after_the_other_each_in_a_directory_of_its_own(loop, tmp_path, capsys):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    assert names(loop) == ["1-en", "2-de"]
    assert loop.closed == [("1-en", ""), ("2-de", "spanloom train o --stage.2.steps")]
    said = capsys.readouterr().out
    assert "stage 1 of 2, en: beginning in o/1-en" in said and "stage 2 of 2, de: beginning in o/2-de" in said
    assert "| de          |    3 |      - | 2.5000 |" in said
    assert (tmp_path / "o" / "forgetting.md").read_text().strip() in said
    assert json.loads((tmp_path / "o" / "forgetting.json").read_text())["tasks"] == ["en", "de"]
    assert [run.name for run in read_stages(tmp_path / "o")] == ["en", "de"]
    assert [run.start for run in read_stages(tmp_path / "o")] == [None, None]
    assert (tmp_path / "o" / "2-de" / "recipe.py").is_file()


def test_stores_are_shared(loop, tmp_path):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    for stage in ("1-en", "2-de"):
        for task in ("en", "de"):
            assert (tmp_path / "o" / stage / "stores" / task).resolve() == tmp_path / "o" / "stores" / task


def test_a_stage_that_another_one_followed_is_not_run_again(loop):
    loop.stops_in = "2-de"
    assert main(["train", "langs.py", "--out", "o"]) == 0
    assert loop.closed == [("1-en", "")]
    loop.stops_in = ""
    assert main(["train", "langs.py", "--out", "o"]) == 0  # the second has no checkpoint yet: the first is looked at
    assert main(["train", "o"]) == 0
    assert names(loop) == ["1-en", "2-de", "1-en", "2-de", "2-de"]


def test_the_directory_goes_on_wherever_it_is_moved(loop, tmp_path):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    (tmp_path / "o").rename(tmp_path / "moved")
    assert main(["train", "moved", "--stage.2.steps", "9"]) == 0
    assert names(loop)[2:] == ["2-de"] and loop.calls[-1][1].steps == 9
    assert main(["train", "moved/2-de", "--steps", "12"]) == 0
    assert loop.calls[-1][1].steps == 12


def test_a_flag_holds_for_all_and_one_with_a_number_or_name_for_one(loop):
    runs = command("--batch-size", "8", "--stage.2.batch-size", "4", "--stage.en.seed", "7").runs
    assert [(run.batch_size, run.seed) for run in runs] == [(8, 7), (4, 0)]
    runs = command("--optimizer", "adafactor", "--stage.2.optimizer", "adamw", "--start", "x").runs
    assert [type(run.optimizer).__name__ for run in runs] == ["Adafactor", "AdamW"]
    assert [run.start for run in runs] == ["x", None]
    runs = command("--follow.optimizer", "continue", "--stage.2.follow.which", "best").runs
    assert [(run.follow.optimizer, run.follow.which) for run in runs] == [("continue", "auto"), ("continue", "best")]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--stage.3.steps", "4"], "--stage.3.steps: no such stage; there are 1 (en), 2 (de)"),
        (["--stage.2.stepz", "4"], "unknown flag --stage.2.stepz; did you mean --steps"),
        (["--stage.2.start", "x"], "--stage.2.start: a stage begins where the one before it ends"),
        (["--stage.2.out", "x"], "--stage.2.out: a stage begins where the one before it ends"),
        (["--stage.2.steps", "x"], "stage 2, 'de': --stage.2.steps 'x': must be a whole number"),
        (
            ["--stage.1.optimizer.decay-rate", "1"],
            "stage 1, 'en': --stage.1.optimizer.decay-rate: optimizer is adamw-rms",
        ),
        (["--name", "x"], "stages 1 and 2 are both named 'x'"),
        (["--stage.2.model.d-ff", "7"], "stage 'de' goes on with the weights of 'en', but model.d_ff: 512 -> 7"),
        (["--stage.2.steps", "-1"], "stage 2, 'de', has -1 steps: a stage has 1 or more"),
        (["--fork", "x"], "--fork goes with one run"),
    ],
)
def test_what_makes_no_sense_is_refused(loop, capfd, flags, words):
    assert main(["train", "langs.py", "--out", "o", *flags]) in (1, 2)
    assert words in capfd.readouterr().err
    assert not loop.calls


def test_a_list_of_one_is_a_run(loop, tmp_path):
    assert main(["train", "langs.py", "--names", "en", "--out", "o"]) == 0
    assert [str(run.out) for _, run in loop.calls] == ["o"] and (tmp_path / "o" / "run.json").is_file()
    assert not (tmp_path / "o" / "stages.json").exists()
    assert command("--names", "en").run.eval.also == ()


def test_one_run_has_no_stages(loop, capfd):
    assert main(["train", "quickstart", "--stage.2.steps", "3"]) == 2
    assert "--stage.2.steps: there are no stages here, but one run: --steps sets it" in capfd.readouterr().err


def test_what_was_trained_is_not_lost_to_another_order(loop, capfd):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    for names_ in (["de", "en"], ["en", "fr", "de"], ["fr", "de"]):
        assert main(["train", "langs.py", "--out", "o", "--names", *names_]) == 1
        assert "is a stage that has trained, and the stages asked for are" in capfd.readouterr().err
    assert len(loop.calls) == 2
    assert main(["train", "langs.py", "--out", "o", "--names", "en", "de", "fr"]) == 0
    assert names(loop)[2:] == ["2-de", "3-fr"]


def test_settings_of_a_stage_that_is_done_do_not_change(loop, capfd):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    assert main(["train", "langs.py", "--out", "o", "--steps", "9"]) == 1
    assert "o/1-en is done with 3 steps" in capfd.readouterr().err
    assert main(["train", "o", "--seed", "9"]) == 1
    assert "o/1-en is done, and the next stage has gone on from it" in capfd.readouterr().err
    assert main(["train", "o", "--stage.2.seed", "9"]) == 1
    assert "o/2-de: settings that decide the result differ" in capfd.readouterr().err
    assert main(["train", "o", "--stage.2.seed", "9", "--accept-change", "seed"]) == 0
    assert [run.seed for run in read_stages(loop.calls[-1][1] and find("o").directory)] == [0, 9]


def test_a_run_and_stages_do_not_share_a_directory(loop, capfd):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    assert main(["train", "quickstart", "--steps", "3", "--out", "o"]) == 1
    assert "o holds runs that follow one another, and this recipe makes one" in capfd.readouterr().err
    assert main(["train", "quickstart", "--steps", "3", "--out", "p"]) == 0
    assert main(["train", "langs.py", "--out", "p"]) == 1
    assert "p holds one run, and this recipe makes several that follow one another" in capfd.readouterr().err


def test_a_damaged_list_of_stages_is_said(loop, tmp_path, capfd):
    assert main(["train", "langs.py", "--out", "o"]) == 0
    for content in ("", "{}", '{"stages": []}', '{"stages": [{"class": "Rum"}]}'):
        (tmp_path / "o" / "stages.json").write_text(content)
        assert main(["train", "o"]) == 1
        assert "o/stages.json: " in capfd.readouterr().err
    assert main(["train", "langs.py", "--out", "o"]) == 0
    assert len(read_stages(tmp_path / "o")) == 2


def test_the_resolved_runs_are_there_for_other_commands(loop):
    first, second = resolved_runs(command("--out", "o"))
    assert first.eval.batch_size == first.batch_size
    assert second.start.endswith("/o/1-en") and second.out == "o/2-de"
    (alone,) = resolved_runs(command("--names", "en", "--out", "o"))
    assert alone.out == "o" and alone.start is None


def test_help_names_the_stages(loop, capsys):
    assert main(["train", "langs.py", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "runs that follow one another: 1 en, 2 de." in text and "--stage.N.FLAG" in text
    assert "Name of the run. (default: each stage's own)" in text
    assert "--follow.optimizer {reset,continue}" in text and "(default: 3)" in text


@pytest.mark.parametrize(
    ("returned", "words"),
    [("[]", "recipe() returned no run"), ("[one(), 3]", "recipe() returned int, and must return")],
)
def test_what_is_no_run_is_refused(tmp_path, returned, words, capfd):
    path = tmp_path / "bad.py"
    path.write_text(
        f"from spanloom.recipes.quickstart import recipe as one\ndef recipe() -> list:\n    return {returned}\n"
    )
    assert main(["train", str(path)]) == 1
    assert words in capfd.readouterr().err
