"""`convert --which all`: goes on where it stopped, and makes nothing twice; conversion itself is tested elsewhere."""

import json
import shutil
from dataclasses import replace

import pytest
from bare_checkpoint import save_bare

from spanloom.cli.convert_all import DONE, convert_all
from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.main import main
from spanloom.conversion.convert import Report
from spanloom.conversion.hf_vocabulary import MARK_NAME
from spanloom.conversion.model_card import CARD_NAME
from spanloom.recipes.quickstart import recipe as quickstart
from spanloom.training.checkpoint_paths import CheckpointError

pytestmark = pytest.mark.short
HOW = {"form": "hf"}


class StoppedError(Exception):
    """Stands for a kill."""


@pytest.fixture
def run(tmp_path):
    for step in (10, 20, 30):
        save_bare(tmp_path / "run", step, quickstart().resolve())
    return tmp_path / "run"


class Converter:
    """Writes a mark and weights in the place of a model, and remembers for which steps."""

    def __init__(self, stop=None, error=None):
        self.made, self.stop, self.error = [], stop, error

    def __call__(self, step, place):
        if step == self.stop:
            raise self.error
        self.made.append(step)
        place.mkdir(parents=True, exist_ok=True)
        for name, content in ((MARK_NAME, f'{{"step": {step}}}'), ("arrays/0", "weights"), (CARD_NAME, "card")):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(content)
        files = {path.relative_to(place).as_posix(): path.stat().st_size for path in place.rglob("*") if path.is_file()}
        return Report(place, files, 0, 0, 0.0, ())


def converted(run, to, **how):
    one = Converter()
    convert_all(run, "run", to, HOW | how, one)
    return one.made


def test_a_killed_command_goes_on_and_a_later_one_takes_the_new(run, tmp_path):
    to = tmp_path / "to"
    killed = Converter(20, StoppedError())
    with pytest.raises(StoppedError):
        convert_all(run, "run", to, HOW, killed)
    assert killed.made == [10]
    assert converted(run, to) == [20, 30] and converted(run, to) == []
    save_bare(run, 40, quickstart().resolve())
    assert converted(run / "checkpoints", to) == [40]


def test_what_is_not_what_was_converted_is_made_again(run, tmp_path):
    to = tmp_path / "to"
    assert converted(run, to) == [10, 20, 30]
    save_bare(run, 20, replace(quickstart(), seed=9).resolve())
    shutil.rmtree(to / "30")
    assert converted(run, to) == [20, 30]
    assert converted(run, to, dtype="bfloat16") == [10, 20, 30]
    (to / DONE).write_text("[half")
    assert converted(run, to, dtype="bfloat16") == [10, 20, 30]


@pytest.mark.parametrize("how", ["gone", "cut off", "of another model", "without a mark"])
def test_a_folder_that_is_not_whole_or_of_another_model_is_made_again(run, tmp_path, how):
    to = tmp_path / "to"
    assert converted(run, to) == [10, 20, 30]
    if how == "gone":
        (to / "20" / "arrays" / "0").unlink()
    elif how == "cut off":
        (to / "20" / "arrays" / "0").write_text("wei")
    else:
        (to / "20" / MARK_NAME).write_text('{"step": 99}')
        if how == "without a mark":
            (to / "20" / MARK_NAME).unlink()
    assert converted(run, to) == [20] and converted(run, to) == []


def test_a_card_that_was_edited_and_files_that_came_stay(run, tmp_path):
    assert converted(run, tmp_path / "to") == [10, 20, 30]
    (tmp_path / "to" / "20" / CARD_NAME).write_text("a longer card")
    (tmp_path / "to" / "20" / "notes").touch()
    assert converted(run, tmp_path / "to") == []


@pytest.mark.parametrize("listed", ["a key", {"key": 1}, [1], None])
def test_a_list_that_something_else_wrote_is_not_believed(run, tmp_path, listed):
    assert converted(run, tmp_path / "to") == [10, 20, 30]
    known = json.loads((tmp_path / "to" / DONE).read_text())
    changed = {"key": known["20"]["key"], "mark": known["20"]["mark"], "files": listed}
    for one in (listed, changed):
        (tmp_path / "to" / DONE).write_text(json.dumps(known | {"20": one}))
        assert converted(run, tmp_path / "to") == [20]


def test_a_damaged_checkpoint_is_named_and_the_others_are_converted(run, tmp_path):
    damaged = Converter(20, CheckpointError("checkpoint 20 is damaged"))
    with pytest.raises(CommandError, match=r"1 of 3 checkpoints were not converted:\ncheckpoint 20 is damaged"):
        convert_all(run, "run", tmp_path / "to", HOW, damaged)
    assert damaged.made == [10, 30]


def test_a_checkpoint_that_its_run_deletes_meanwhile_is_passed_over(run, tmp_path, capsys):
    class Deleting(Converter):
        def __call__(self, step, place):
            shutil.rmtree(run / "checkpoints" / "20", ignore_errors=True)
            return super().__call__(step, place)

    one = Deleting()
    convert_all(run, "run", tmp_path / "to", HOW, one)
    assert one.made == [10, 30] and "20 was deleted by its run meanwhile" in capsys.readouterr().out


def test_what_is_one_model_has_no_all(run, tmp_path, capsys):
    with pytest.raises(UsageError, match=r"--which all: .* is a Spanloom checkpoint; all is of a run"):
        convert_all(run / "checkpoints" / "10", "checkpoint", tmp_path / "to", HOW, Converter())
    words = ["convert", str(run), str(tmp_path / "to"), "--which", "all", "--push", "user/name"]
    assert main(words) == 2 and "--push publishes one model" in capsys.readouterr().err
