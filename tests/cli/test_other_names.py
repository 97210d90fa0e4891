"""Names of other tools are answered by what is meant here; every flag and command so named exists."""

import re

import pytest

from spanloom.cli import other_names
from spanloom.cli.errors import UsageError
from spanloom.cli.main import COMMANDS, main
from spanloom.cli.parsing import refuse_unknown
from spanloom.cli.tokens import Flag
from spanloom.settings.kinds import all_fields

SAID = [*other_names._FLAGS.values(), *other_names._COMMANDS.values()]


def test_what_is_named_exists():
    flags = {flag.replace("-", "_") for said in SAID for flag in re.findall(r"--([a-z.-]*[a-z])", said)}
    recipes = {"heldout", "inputs_length", "targets_length"}
    assert flags - recipes <= {*all_fields(), "out", "to", "push"}
    assert set(other_names._OF_A_RUN.values()) <= set(all_fields())
    assert {command for said in SAID for command in re.findall(r"spanloom (\w+)", said)} <= set(COMMANDS)
    assert not set(other_names._COMMANDS) & set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pretrain", "--text", "a", "--gpu", "0"], r"unknown flag --gpu; .*CUDA_VISIBLE_DEVICES=0"),
        (["pretrain", "--text", "a", "--epochs", "2"], r"unknown flag --epochs; .*--steps N"),
        (["finetune", "--data", "a", "--validation", "b"], r"unknown flag --validation; .*--heldout FILES"),
        (
            ["train", "quickstart", "--validation", "b"],
            r"unknown flag --validation; `spanloom train quickstart --help`",
        ),
        (["resume", "runs/a"], r"unknown command 'resume'; the same command goes on"),
        (["predict", "runs/a"], r"unknown command 'predict'; .*spanloom generate"),
    ],
)
def test_names_of_other_tools(words, said, capsys):
    assert main(words) == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_run_that_has_begun_has_fields_in_the_place_of_its_recipes_flags():
    flags, known = [Flag("--data", "data", ("a.tsv",))], ["steps", "task.source.files"]
    with pytest.raises(UsageError, match=r"and the run has --task\.source\.files in its place"):
        refuse_unknown(flags, known, "spanloom train runs/a", begun=True)
    with pytest.raises(UsageError, match=r"unknown flag --data; there are steps"):
        refuse_unknown(flags, ["steps"], "spanloom train quickstart")


@pytest.mark.parametrize(("command", "flag"), [("pretrain", "--text"), ("finetune", "--data")])
def test_a_file_without_its_flag(command, flag, tmp_path, capsys):
    (tmp_path / "a.tsv").touch()
    assert main([command, str(tmp_path / "a.tsv")]) == 2
    assert f"({flag} {tmp_path}/a.tsv?)" in capsys.readouterr().err
