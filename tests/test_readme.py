"""The README's commands run as they stand there, in its order, on a corpus made for the test."""

import re
import shlex
from pathlib import Path

import pytest
from pages import FEW_STEPS, README, ROOT, commands, kinds, make_corpus, marked

from spanloom.cli.main import main

SMALLER = (
    ("byt5_small", "byt5_tiny"),
    ("t5_1_1_base", "t5_1_1_tiny"),
    ("--size 8000", "--size 400"),
)
"""What the test replaces in a command, so that it takes seconds: sizes of models and vocabularies alone."""


def test_the_readme_has_commands_and_every_block_is_of_a_known_kind():
    assert kinds(README) <= {"sh", "text", "python"}
    assert len([line for line in commands(README) if line.startswith("spanloom ")]) >= 8


def test_every_make_target_the_readme_names_is_there():
    targets = {line.split()[1] for line in commands(README) if line.startswith("make ")}
    assert {"quickstart", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_the_recipe_of_the_readme_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    make_corpus(tmp_path)
    (tmp_path / "novels.py").write_text(marked(README, "recipe"), encoding="utf-8")
    run_command(f"spanloom train novels.py --out runs/n --schedule.warmup-steps 1 {' '.join(FEW_STEPS)}")
    assert (tmp_path / "runs/n/checkpoints/2").is_dir()


def test_the_commands_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    make_corpus(tmp_path)
    (tmp_path / "sums.py").write_text(marked(README, "tasks"), encoding="utf-8")
    ran = 0
    for line in commands(README):
        if not line.startswith("spanloom ") or line.startswith("spanloom train quickstart"):
            continue
        run_command(smaller(line))
        ran += 1
    assert ran >= 8
    assert (tmp_path / "exported" / "model.safetensors").is_file()
    assert len((tmp_path / "answers.jsonl").read_text(encoding="utf-8").splitlines()) == 2


def smaller(line: str) -> str:
    """The command with tiny models, and few steps where it trains."""
    for size, tiny in SMALLER:
        line = line.replace(size, tiny)
    trains = re.match(r"spanloom (train|pretrain|finetune) ", line) and "--help" not in line
    if trains and "runs/a --steps" in line:
        return re.sub(r"--steps \d+", "--steps 3", line)
    return f"{line} {' '.join(FEW_STEPS)}" if trains else line


def run_command(line: str) -> None:
    """Runs one command in this process, in its directory."""
    words = shlex.split(line)
    assert words[0] == "spanloom"
    assert main(words[1:]) == 0, line
