"""docs/from_t5x.md: its files are migrated as it says, and its commands run, on a corpus made for the test."""

import json
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, FEW_STEPS, commands, kinds, marked, read

from spanloom.cli.main import COMMANDS, main

(PAGE,) = (page for page in DOCS if page.name == "from_t5x.md")
FILES = ("novels.gin", "novels_tasks.py", "questions.gin", "operative_config.gin")
SMALLER = (
    ("byt5/small.gin", "byt5/tiny.gin"),
    ("1472", "8"),
    ("3584", "16"),
    ("1024", "96"),
    ("num_heads = 6", "num_heads = 4"),
)
"""What the test replaces in the files, so that models take seconds: sizes alone."""

pytest.importorskip("gin")


def block(mark: str) -> str:
    return marked(PAGE, mark)


def write_files(folder: Path, smaller: bool) -> None:
    for name in FILES:
        content = block(name)
        for size, tiny in SMALLER if smaller and name.endswith(".gin") else ():
            content = content.replace(size, tiny)
        (folder / name).write_text(content, encoding="utf-8")
    for place in ("corpus", "heldout"):
        (folder / place).mkdir()
        lines = [f"The {number}th sentence of the {place} tells of house {number * 7 % 31}." for number in range(60)]
        (folder / place / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "questions.tsv").write_text("".join(f"What is {n} and {n}?\t{2 * n} IS IT\n" for n in range(300)))
    (folder / "lines.txt").write_text("The first of them\nThe last of them\n")


def test_every_command_of_a_table_is_one_that_runs():
    told = re.findall(r"`(spanloom [^`]+)`", read(PAGE))
    assert len(told) >= 9 and set(told) <= set(commands(PAGE))
    assert all(line.split()[1] in COMMANDS for line in commands(PAGE))
    assert kinds(PAGE) == {"sh", "text", "python"}


def test_the_recipe_of_the_page_is_what_migrate_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, smaller=False)
    for line in commands(PAGE):
        if line.startswith("spanloom migrate "):
            assert main(shlex.split(line)[1:]) == 0
    assert block("novels.py").strip() in Path("novels.py").read_text(encoding="utf-8")
    assert block("question").strip() in Path("questions.py").read_text(encoding="utf-8")
    mesh = Path("mesh.py").read_text(encoding="utf-8")
    assert 'named("byt5_small")' in mesh and "batch_tokens=1_048_576" in mesh and "steps=100_000" in mesh
    assert "steps=500," in Path("questions.py").read_text(encoding="utf-8")


def test_the_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, smaller=True)
    for line in commands(PAGE):
        words = shlex.split(line)[1:]
        assert main([*words, *(FEW_STEPS if words[0] == "train" else ())]) == 0, line
    assert Path("exported/model.safetensors").is_file()
    assert Path("runs/questions/checkpoints/2").is_dir()
    assert len(Path("answers.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    first = json.loads(Path("runs/novels/metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first
