"""Gin files come to what gin itself makes of them, as golden/t5x/gin/expected has it for well-known files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gin_text import TOP_LEVEL, ours, written
from golden_data import golden_dir

from spanloom.migration.gin_config import GinConfig, read_gin
from spanloom.migration.gin_statements import GinError, Macro, Reference

pytest.importorskip("gin")
DOUBLED = "M0 = [1]\n" + "".join(f"M{n + 1} = [%M{n}, %M{n}]\n" for n in range(25))
KNOWN = {
    "t5x__examples__t5__byt5__small": "t5x/examples/t5/byt5/small.gin",
    "t5x__examples__t5__mt5__base": "t5x/examples/t5/mt5/base.gin",
    "t5x__examples__t5__t5_1_0__small": "t5x/examples/t5/t5_1_0/small.gin",
}
NAMES = (
    "hmByT5__0_english_operative_config",
    "multilingual-t0__mt0_xl_finetune",
    "multilingual-t0__mt0_xxl_finetune",
    "t5x__examples__scalable_t5__umt5__pretrain_small",
    "t5x_models__ro_mt5x_base",
    "t5x_models__ro_t5x_base",
    *KNOWN,
    *TOP_LEVEL,
)


def expected(name: str) -> dict[str, Any]:
    return json.loads((golden_dir("t5x", "gin", "expected") / f"{name}.json").read_text(encoding="utf-8"))


def check(config: GinConfig, wanted: dict[str, Any]) -> None:
    assert config.as_written() == {key: ours(value) for key, value in wanted["bindings"].items()}
    assert config.resolved() == {key: ours(value) for key, value in wanted["resolved"].items()}
    unset = {one.name for value in config.resolved().values() for one in macros(value)}
    assert sorted(unset) == wanted["macros_without_a_value"]


def macros(value: Any) -> list[Macro]:
    if isinstance(value, Macro):
        return [value]
    if isinstance(value, dict | list | tuple):
        return [found for one in (value.values() if isinstance(value, dict) else value) for found in macros(one)]
    return []


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_what_golden_bindings_come_to(name: str, tmp_path: Path) -> None:
    """The bindings written as a file of the same grammar, cut in three that include one another."""
    wanted = expected(name)
    parts = list(wanted["bindings"].items())
    third = len(parts) // 3
    (tmp_path / "a.gin").write_text(written(dict(parts[:third])))
    (tmp_path / "b.gin").write_text("include 'a.gin'\n" + written(dict(parts[third : 2 * third])))
    imports = "\n".join(wanted["imports"])
    (tmp_path / "c.gin").write_text(f"{imports}\ninclude 'b.gin'\n" + written(dict(parts[2 * third :])))
    config = read_gin([str(tmp_path / "c.gin")])
    check(config, wanted)
    assert [one.text for one in config.imports] == wanted["imports"]


@pytest.mark.golden
@pytest.mark.parametrize("name", TOP_LEVEL)
def test_files_of_t5x_are_known_where_they_are_not_there(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.gin").write_text(TOP_LEVEL[name])
    config = read_gin([str(tmp_path / "run.gin")])
    check(config, expected(name))
    assert len(config.known) == 2 and not config.missing


@pytest.mark.golden
@pytest.mark.parametrize("name", KNOWN)
def test_models_of_t5x_are_known(name: str) -> None:
    check(read_gin([KNOWN[name]]), expected(name))


def real_file(name: str) -> Path:
    folder = os.environ.get("SPANLOOM_GIN")
    if not folder:
        pytest.skip("set SPANLOOM_GIN to a folder with T5X's and others' gin files")
    path = Path(folder) / expected(name)["file"]
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_real_files(name: str) -> None:
    path, wanted = real_file(name), expected(name)
    config = read_gin([str(path)], search=[os.environ["SPANLOOM_GIN"]])
    check(config, wanted)
    assert [one.text for one in config.imports] == wanted["imports"]
    assert [one.file for one in config.missing] == wanted["includes_not_found"]


def test_two_names_of_one_argument_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("a.b.F.x = 1\nF.x = 2\nb.F.y = 3\ns/F.y = 4\ns/t/F.y = 5\nF.y = 6\nG.x = 7\n")
    config = read_gin([str(tmp_path / "a.gin")])

    def found(selector: str, argument: str, scope: str = "") -> Any:
        binding = config.find(selector, argument, scope)
        return binding and binding.value

    assert found("a.b.F", "x") == found("b.F", "x") == 2
    assert found("c.F", "y") == 6 and found("b.F", "y", "s") == 4
    assert found("F", "y", "s/t/u") == 5 and found("F", "y", "st") == 6 and found("F", "z") is None


def test_macros_may_be_set_late_and_inside_of_values_and_as_gin_spells_them(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("f.x = [%A, (%B,), {'k': %C}]\nA = %B\nB = 2\nC/macro.value = @s/g()\nB = 3\n")
    used: set[str] = set()
    config = read_gin([str(tmp_path / "a.gin")])
    binding = config.find("f", "x")
    assert binding is not None
    assert config.value(binding.value, used) == [3, (3,), {"k": Reference("s/g", True)}]
    assert used == {"A", "B", "C"}


def test_the_command_line_comes_last_and_says_how_texts_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("A = 1\nf.x = %A\n")
    file = str(tmp_path / "a.gin")
    config = read_gin([file], [("A", "{'b': 2}"), ("train/f.x", "'c'")])
    assert config.resolved() == {"A": {"b": 2}, "f.x": {"b": 2}, "train/f.x": "c"}
    with pytest.raises(GinError, match=r"needs quotes: .--gin.A=.c4_span"):
        read_gin([file], [("A", "c4_span")])


def test_includes_are_found_beside_above_and_in_the_search_path(tmp_path: Path) -> None:
    for folder in ("repo/t5x/runs", "more"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "repo/t5x/runs/a.gin").write_text("include 'b.gin'\ninclude 't5x/c.gin'\ninclude 'd.gin'\nX = 1\n")
    for name in ("repo/t5x/runs/b.gin", "repo/t5x/c.gin", "more/d.gin"):
        (tmp_path / name).write_text(f"{Path(name).stem.upper()} = 2\n")
    file = str(tmp_path / "repo/t5x/runs/a.gin")
    config = read_gin([file], search=[tmp_path / "more"])
    assert config.as_written() == {"B": 2, "C": 2, "D": 2, "X": 1}
    assert [one.place.line for one in config.bindings] == [1, 1, 1, 4]
    assert [one.file for one in read_gin([file]).missing] == ["d.gin"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = foo\n", "bad.gin:2: "),
        ("a = [1,\n", "bad.gin:.*left open"),
        ("a.b:\n    c = 1\n  d = 2\n", "bad.gin:3: unindent"),
        ("a = " + "[" * 20000, "bad.gin"),
        ("include 'bad.gin'\n", "includes itself"),
        ("A = %B\nB = %A\n", "in a circle: A -> B -> A|in a circle: B -> A -> B"),
        ("a = 1\0\n", "bad.gin"),
        ("include 3\n", "bad.gin:1: Expected file path"),
        (DOUBLED, "more than 100,000 values"),
        ("\x80\x81", "bad.gin"),
    ],
)
def test_bad_files_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.gin").write_text(text, encoding="latin-1")
    with pytest.raises(GinError, match=message):
        read_gin([str(tmp_path / "bad.gin")]).resolved()


def test_files_that_include_one_another_again_and_again_are_named(tmp_path: Path) -> None:
    (tmp_path / "0.gin").write_text("A = 1\n")
    for number in range(1, 30):
        (tmp_path / f"{number}.gin").write_text(f"include '{number - 1}.gin'\n" * 2)
    with pytest.raises(GinError, match="more than 1,000 includes"):
        read_gin([str(tmp_path / "29.gin")])


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.gin").write_text("A = 1\r\nB = %A\r\n", encoding="utf-8-sig")
    assert read_gin([str(tmp_path / "a.gin")]).resolved() == {"A": 1, "B": 1}


def test_files_that_are_not_there_are_named() -> None:
    with pytest.raises(GinError, match=r"nowhere.gin: no such file"):
        read_gin(["nowhere.gin"])
