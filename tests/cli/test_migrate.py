"""spanloom migrate: T5X's own command line, one recipe that is whole or not there, and what is said of the rest."""

import signal
import tempfile
from pathlib import Path

import pytest

from spanloom.cli.main import main

pytest.importorskip("gin")
GIN = """
include 't5x/examples/t5/byt5/tiny.gin'
include 't5x/configs/runs/pretrain.gin'
MIXTURE_OR_TASK_NAME = 'my_corpus'
TASK_FEATURE_LENGTHS = {'inputs': 64, 'targets': 14}
TRAIN_STEPS = 10
DROPOUT_RATE = 0.0
seqio.Evaluator.loggers = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.gin").write_text(GIN)
    return tmp_path


def test_what_is_lost_is_on_stderr_with_file_line_and_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "run.gin", "--out", "mine.py"]) == 0
    said = capsys.readouterr()
    assert "run.gin:8: seqio.Evaluator.loggers = 3\n      spanloom eval has settings of its own" in said.err
    assert "task my_corpus" in said.err and "--module tasks.py" in said.err
    assert said.out.startswith("mine.py: a recipe. ") and "2 not carried over" in said.out
    text = (folder / "mine.py").read_text(encoding="utf-8")
    assert "steps=10," in text and "# Not carried over:" in text


def test_sigterm_leaves_no_folder_among_the_temporary_ones(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "temporary"))
    monkeypatch.setattr("spanloom.cli.recipe.find", lambda name: signal.raise_signal(signal.SIGTERM))
    assert main(["migrate", "run.gin", "--out", "mine.py"]) == 143
    assert capsys.readouterr().err == "spanloom: ended by SIGTERM\n"
    assert not list((folder / "temporary").iterdir()) and not (folder / "mine.py").exists()


def test_flags_of_t5x_are_understood(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "b.gin").write_text("BATCH_SIZE = 7\n")
    (folder / "a.gin").write_text("include 'b.gin'\n")
    words = ["--gin_file=run.gin", "--gin_file", "a.gin", "--gin_search_paths=more", "--gin.TRAIN_STEPS=77"]
    assert main(["migrate", *words, "--gin_bindings=RANDOM_SEED = 5", "--gin.train/utils.DatasetConfig.seed", "5"]) == 0
    text = (folder / "recipe.py").read_text(encoding="utf-8")
    assert "batch_size=7," in text and "steps=77," in text and "seed=5," in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "missing: GIN"),
        (["nowhere.gin"], "nowhere.gin: no such file"),
        (["run.gin", "--out", "mine.txt"], "a recipe is a .py file"),
        (["run.gin", "--out", "no/where.py"], "there is no folder no"),
        (["run.gin", "--out", "run.py"], "run.py is there already"),
        (["run.gin", "--gin.MIXTURE_OR_TASK_NAME=abc"], "needs quotes"),
        (["run.gin", "--gin.TRAIN_STEPS"], "must be --gin.NAME=VALUE"),
        (["run.gin", "--modul", "x.py"], "unknown flag --modul; did you mean --module?"),
        (["run.gin", "--module", "x.py"], "--module x.py: no such file"),
        (["run.gin", "--module", "fails.py"], "fails.py:2: ZeroDivisionError"),
        (["run.gin", "--gin.SaveCheckpointConfig.period=@f()"], "error: the recipe would not run: recipe.py:"),
    ],
)
def test_bad_command_lines_are_named_and_write_nothing(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run.py").write_text("mine")
    (folder / "fails.py").write_text("import seqio\n1 / 0\n")
    assert main(["migrate", *words]) in (1, 2)
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in folder.iterdir()) == ["fails.py", "run.gin", "run.py"]
    assert (folder / "run.py").read_text() == "mine"


def test_what_contradicts_itself_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "run.gin", "--gin.trainer.Trainer.num_microbatches=3"]) == 0
    assert "to be mended before it runs: microbatch_size is 42" in capsys.readouterr().err


def test_a_number_without_end_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "run.gin", "--gin.utils.create_learning_rate_scheduler.base_learning_rate=1e999"]) == 0
    assert "inf" in capsys.readouterr().err and 'float("inf")' in (folder / "recipe.py").read_text(encoding="utf-8")


def test_overwrite(folder: Path) -> None:
    (folder / "recipe.py").write_text("mine")
    assert main(["migrate", "run.gin", "--overwrite"]) == 0
    assert "def recipe(" in (folder / "recipe.py").read_text(encoding="utf-8")


def test_without_gin_config_the_fix_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gin", None)
    assert main(["migrate", "run.gin"]) == 1
    assert "pip install 'spanloom[gin]'" in capsys.readouterr().err
    assert not (folder / "recipe.py").exists()


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--help"]) == 0
    said = capsys.readouterr().out
    assert all(flag in said for flag in ("--module", "--prompts", "--out", "--gin.NAME=VALUE", "--overwrite"))
