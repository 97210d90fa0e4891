import json
from pathlib import Path

import pytest

from spanloom.cli.main import main

SHORT = ["--text", "corpus.jsonl", "--model", "byt5_tiny", "--heldout-share", "0.05"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A corpus of three shards, and one with a broken line in its third."""
    folder = tmp_path_factory.mktemp("cache")
    line = "the novels of a whole country, one after another, \u6c34 and so on " * 500
    with (folder / "corpus.jsonl").open("w") as good, (folder / "bad.jsonl").open("w") as bad:
        for number in range(2300):
            row = json.dumps({"text": f"{number} {line}"}) + "\n"
            good.write(row)
            bad.write(row if number != 2100 else '{"text": oh\n')
    return folder


def stores(directory: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def test_any_number_of_workers_makes_the_same_stores(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    made = []
    for words in (["--workers", "1"], ["--workers", "3"], []):
        out = f"out{len(made)}"
        assert main(["cache", "pretrain", *SHORT, "--out", out, *words]) == 0
        made.append(stores(folder / out / "stores"))
        assert f"stores in {out}/stores" in capsys.readouterr().out
    assert made[0] == made[1] == made[2]
    assert {"text/train/shard-00002.arrow", "text/heldout/shard-00000.arrow"} <= {*made[0]}


def test_bad_input_is_the_same_message_whatever_the_number_of_workers(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    said = []
    for workers in ("1", "2"):
        words = ["--workers", workers, "--text", "bad.jsonl"]
        assert main(["cache", "pretrain", *SHORT[2:], "--out", f"bad{workers}", *words]) == 1
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and "bad.jsonl:2101: broken JSON" in said[0]


def test_warnings_are_lines_of_the_display(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "small.txt").write_text("".join(f"line {number} of a small text\n" for number in range(300)))
    words = ["cache", "pretrain", "--text", "small.txt", "--model", "byt5_tiny", "--out", "small"]
    assert main(words) == 0
    assert "warning" not in capsys.readouterr().out
    with (folder / "small.txt").open("a") as file:
        file.write("one line more\n")
    assert main(words) == 0
    told = capsys.readouterr()
    for split in ("train", "heldout"):
        assert f"warning: the store small/stores/text/{split} is built anew: changed" in told.out
    assert "built anew" not in told.err


def test_help_of_a_recipe_lists_its_flags_and_the_commands_own(capsys):
    assert main(["cache", "--help"]) == 0
    assert "spanloom cache RECIPE --help" in capsys.readouterr().out
    assert main(["cache", "pretrain", "--help"]) == 0
    told = capsys.readouterr().out
    assert "usage: spanloom cache pretrain" in told
    assert "--text" in told and "--workers INT|None" in told
    assert "--fork" not in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "0"], "--workers 0: must be 1 or more"),
        (["--workers", "two"], "must be a whole number or None"),
        (["--workers"], "--workers takes a value"),
        (["--fork", "x"], "unknown flag --fork"),
    ],
)
def test_options_that_make_no_sense(words, said, capsys):
    assert main(["cache", "pretrain", "--text", "a.txt", *words]) == 2
    assert said in capsys.readouterr().err
