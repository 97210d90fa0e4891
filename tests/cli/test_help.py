import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import pytest
from calls import calls_of

from spanloom.cli.help import MOST_USED, Entry, Group, field_texts, metavar, render, shown
from spanloom.cli.main import main
from spanloom.cli.recipe import find
from spanloom.recipes import shipped
from spanloom.settings.kinds import all_fields, parts
from spanloom.settings.objectives import UL2
from spanloom.settings.run import Run

pytestmark = pytest.mark.short

COMMANDS = [
    ["pretrain"],
    ["finetune"],
    ["generate"],
    ["score"],
    ["fill"],
    ["convert"],
    ["inspect"],
    ["report"],
    ["watch"],
    ["diff"],
    ["launch", "quickstart"],
    ["launch", "status"],
    *(["train", name] for name in shipped()),
]


def help_of(argv, capsys, monkeypatch, columns=120):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*argv, "--help"]) == 0
    return capsys.readouterr().out


def flags_in(text):
    return re.findall(r"^  --(\S+) ", text, re.MULTILINE)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_help_teaches_within_the_width(argv, columns, capsys, monkeypatch):
    text = help_of(argv, capsys, monkeypatch, columns)
    assert text.startswith("usage: spanloom " + " ".join(argv))
    assert max(map(len, text.splitlines())) <= columns
    assert "\n    spanloom " in text
    assert "INT, FLOAT and STR are one value" in text
    flags = flags_in(text)
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("name", list(shipped()))
def test_a_recipes_own_flags_come_first_and_those_used_most_next(name, capsys, monkeypatch):
    flags = [flag.replace("-", "_") for flag in flags_in(help_of(["train", name], capsys, monkeypatch))]
    flags = [flag for flag in flags if not flag.startswith("stage.")]  # how one stage's are said, where there are any
    own = [parameter.name for parameter in find(name).parameters]
    assert flags[: len(own)] == own
    often = [field for field in MOST_USED if field not in own]
    assert flags[len(own) :][: len(often)] == often


@pytest.mark.parametrize("name", list(shipped()))
def test_every_field_of_the_run_is_listed(name, capsys, monkeypatch):
    flags = {flag.replace("-", "_") for flag in flags_in(help_of(["train", name], capsys, monkeypatch))}
    of_every_kind = {field for field, kinds in all_fields().items() if not kinds}
    plain_parts = {part.path for part in parts() if len(part.kinds) == 1} - {"model"}
    assert of_every_kind - plain_parts - {"task"} <= flags


@pytest.mark.parametrize("name", ["pretrain", "finetune", "quickstart"])
def test_examples_are_two_or_what_a_recipe_without_parameters_needs(name, capsys, monkeypatch):
    text = help_of(["train", name], capsys, monkeypatch).partition("INT, FLOAT")[0]
    assert len(re.findall(r"^    spanloom ", text, re.MULTILINE)) >= (1 if name == "quickstart" else 2)


def test_defaults_are_the_recipes_even_before_it_can_make_a_run(capsys, monkeypatch):
    text = " ".join(help_of(["finetune"], capsys, monkeypatch).split())
    for said in (
        "--steps INT Training steps, counted from the start checkpoint. May be raised on resume. (default: 1000)",
        "Sequences in a training batch, over all devices; of packed data, rows. (default: 64)",
        "Width of the residual stream. (default: that of --start)",
        "0.1 for most fine-tuning. (default: 0.1)",
        "folder to start from. Must be given. --heldout",
    ):
        assert said in text


def test_a_recipe_of_ones_own_that_must_be_told_something(tmp_path, capsys, monkeypatch):
    path = tmp_path / "mine.py"
    path.write_text(
        '"""Mine.\n\n    spanloom train mine.py --size 3\n"""\n'
        "from dataclasses import replace\nfrom spanloom.recipes.quickstart import recipe as base\n"
        "def recipe(size: int, steps: int = 7):\n"
        '    """The run.\n\n    Args:\n      size: A size.\n    """\n    return replace(base(), steps=steps)\n'
    )
    text = help_of(["train", str(path)], capsys, monkeypatch)
    assert "    spanloom train mine.py --size 3\n" in text
    assert "  --size INT\n      A size. (must be given)\n  --steps INT\n      (default: 7)\n" in text
    assert "of packed data, rows. (default: the recipe's)" in text
    assert "--size INT" in (known := help_of(["train", str(path), "--size", "3"], capsys, monkeypatch))
    assert "of packed data, rows. (default: 16)" in known


@dataclass(frozen=True)
class Settings:
    """Settings."""

    number: int = 3
    """How
    many."""
    bare: str = ""
    on: bool = False
    """On?"""


def test_what_stands_under_a_field_is_its_meaning():
    assert field_texts(Settings) == {"number": "How many.", "on": "On?"}
    assert field_texts(Run)["name"] == "Name of the run."
    assert {*field_texts(UL2)} == {f.name for f in fields(UL2)}, "inherited ones too"


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (int, "INT"),
        (bool, "{true,false}"),
        (str | None, "STR|None"),
        (tuple[str, ...], "[STR ...]"),
        (list[int], "[INT ...]"),
        (Literal["a", "b"] | float, "{a,b}|FLOAT"),
        (tuple[Literal["x", "y"], ...], "[{x,y} ...]"),
        (Path, "PATH"),
    ],
)
def test_what_a_value_may_be(hint, said):
    assert metavar(hint) == said


def test_defaults_as_they_are_typed():
    assert [shown(v) for v in (True, None, (), ("a b", "c"), "", 1e-3)] == [
        *["true", "None", "None", "'a b' c", "''", "0.001"]
    ]


def test_lines_break_where_a_shell_lets_them():
    groups = [Group("flags", "What they are.", (Entry("a_b", int, "Words " * 20, "3"),))]
    text = render("spanloom x [flags]", "Title.\n\n    spanloom x --one 1 --two 2 --three 3\n\n- a\n- b", groups, 40)
    assert "    spanloom x --one 1 --two 2 \\\n        --three 3\n" in text
    assert "\n- a\n- b\n" in text
    assert "\nflags:\n  What they are.\n  --a-b INT\n      Words Words" in text
    assert max(map(len, text.splitlines())) <= 40


def test_help_is_there_at_once(capsys, monkeypatch):
    for name in ("pretrain", "finetune"):
        _, calls = calls_of(lambda name=name: help_of([name], capsys, monkeypatch))
        assert calls < 250_000, calls
