"""Names and flags in any order, for commands that take no recipe."""

import shlex
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tyro.conf import Positional, arg

from spanloom.cli.errors import UsageError
from spanloom.cli.launch_verbs import Reading, _read
from spanloom.cli.main import COMMANDS, main
from spanloom.cli.parsing import options

pytestmark = pytest.mark.short


@dataclass(frozen=True)
class Options:
    """Of a command that takes two names."""

    source: Annotated[Positional[str], arg(metavar="SRC")]
    target: Annotated[Positional[str], arg(metavar="DST")]
    to: Literal["hf", "t5x"] = "hf"
    text: tuple[str, ...] = ()
    most: int = 0
    name: str | None = None
    json: bool = False


def read(line: str, rest: str = "") -> Options:
    return options(Options, shlex.split(line), "prog", "SRC DST", "", rest)


@given(st.permutations(["a", "b", "--to t5x", "--text=p", "--text=q", "--most -3", "--json", "--name=--x"]))
def test_any_order_says_the_same(parts: list[str]):
    names = [part for part in parts if part in ("a", "b")]
    texts = tuple(part[-1] for part in parts if part.startswith("--text"))
    assert read(" ".join(parts)) == Options(*names, to="t5x", text=texts, most=-3, name="--x", json=True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--to=t5x a b", Options("a", "b", to="t5x")),
        ("--json a --debug b", Options("a", "b", json=True)),
        ("--json no a b", Options("a", "b", json=False)),
        ("a --json b", Options("a", "b", json=True)),
        ("a b --text p q --most 1", Options("a", "b", text=("p", "q"), most=1)),
        ("--text p q --most 1 a b", Options("a", "b", text=("p", "q"), most=1)),
        ("--text p q --json a b", Options("a", "b", text=("p", "q"), json=True)),
        ("--text p q -- a b", Options("a", "b", text=("p", "q"))),
        ("--text p --json --text q r --most 1 a b", Options("a", "b", text=("p", "q", "r"), most=1, json=True)),
        ("a -dash", Options("a", "-dash")),
        ("--to hf -- -a --json", Options("-a", "--json")),
        ("-1 -2", Options("-1", "-2")),
        ("a b --text -p -q --name -1", Options("a", "b", text=("-p", "-q"), name="-1")),
        ("a b --text=--p --most=-1", Options("a", "b", text=("--p",), most=-1)),
    ],
)
def test_a_flag_takes_as_many_words_as_its_type_has_room_for(line: str, expected: Options):
    assert read(line) == expected


def test_words_that_have_no_place_are_values_of_the_rest():
    assert read("--most 1 a b c --json d --text e", "text") == Options(
        "a", "b", text=("c", "d", "e"), most=1, json=True
    )
    assert read("-- a b -c --d", "text") == Options("a", "b", text=("-c", "--d"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--to hf a", "missing: DST; usage"),
        ("--text p a b", r"missing: SRC DST \(--text took all 3 words after it: put -- before names there\)"),
        ("--to hf a b c", "'c' is left over"),
        ("a b --most 1 2", "--most takes one value, not 2: 1 2"),
        ("a b --json maybe", "--json 'maybe': must be true or false"),
        ("a b --text=p q", "'q' is left over"),
        ("a b --to", "--to takes a value"),
        ("a b --to=", "--to '': must be one of hf, t5x"),
        ("a b --tox x y", "unknown flag --tox"),
    ],
)
def test_what_cannot_be_understood_is_said(line: str, message: str):
    with pytest.raises(UsageError, match=message):
        read(line)


def test_every_command_says_where_names_may_stand(capsys: pytest.CaptureFixture[str]):
    for name in ("convert", "inspect", "diff", "fill", "generate", "score", "report", "watch", "migrate"):
        assert name in COMMANDS
        assert main([name, "--help"]) == 0
        assert "Names may stand behind flags" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        "convert --to=hf /nonexistent/a b",
        "convert --to hf -- /nonexistent/a -b",
        "inspect --json /nonexistent/a",
        "vocab check --extra-ids 3 /nonexistent/a",
        "generate --beams 2 /nonexistent/a",
    ],
)
def test_commands_read_names_behind_flags(line: str, capfd: pytest.CaptureFixture[str]):
    assert main(shlex.split(line)) in (1, 2)
    told = capfd.readouterr().err
    assert "/nonexistent/a" in told, told
    assert "takes one value" not in told


@pytest.mark.parametrize("line", ["--process 1 runs/a --attempt=2", "runs/a --process 1 --attempt 2"])
def test_verbs_of_launch_read_names_behind_flags(line: str):
    assert _read(Reading, line.split(), "logs", "", "") == ("runs/a", Reading(process=1, attempt=2))
