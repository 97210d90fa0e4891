"""The README's commands run as they stand there, in its order, on a corpus made for the test."""

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"

SMALLER = (
    ("byt5_small", "byt5_tiny"),
    ("t5_1_1_base", "t5_1_1_tiny"),
    ("--size 8000", "--size 400"),
)
"""What the test replaces in a command, so that it takes seconds: sizes of models and vocabularies alone."""

FEW_STEPS = ("--steps", "2", "--batch_size", "4", "--eval.max-batches", "1")
"""What the test adds to a command that trains and names no number of steps itself."""


def commands() -> list[str]:
    """The lines of the README's `sh` blocks that call spanloom or Python, comments cut, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def test_the_readme_has_commands_and_every_block_is_of_a_known_kind():
    kinds = re.findall(r"^```(\w+)", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(kinds) <= {"sh", "text", "python"}
    assert len([line for line in commands() if line.startswith("spanloom ")]) >= 8


def test_every_file_the_readme_names_is_there():
    named = re.findall(r"\]\(((?!http|#)[^)#]+)\)", README.read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_make_target_the_readme_names_is_there():
    targets = {line.split()[1] for line in commands() if line.startswith("make ")}
    assert {"quickstart", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def recipe_of(mark: str) -> str:
    """The recipe after a comment of the README."""
    return README.read_text(encoding="utf-8").split(f"<!-- {mark} -->")[1].split("```python\n")[1].split("```")[0]


def test_the_recipe_of_the_readme_trains(tmp_path: Path):
    make_corpus(tmp_path)
    (tmp_path / "novels.py").write_text(recipe_of("recipe"), encoding="utf-8")
    run_command(f"spanloom train novels.py --out runs/n --schedule.warmup-steps 1 {' '.join(FEW_STEPS)}", tmp_path)
    assert (tmp_path / "runs/n/checkpoints/2").is_dir()


def test_the_commands_run_in_order(tmp_path: Path):
    make_corpus(tmp_path)
    (tmp_path / "sums.py").write_text(recipe_of("tasks"), encoding="utf-8")
    ran = 0
    for line in commands():
        if not line.startswith("spanloom ") or line.startswith("spanloom train quickstart"):
            continue
        run_command(smaller(line), tmp_path)
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


def run_command(line: str, directory: Path) -> None:
    """Runs one command in `directory`; fails with its output if it fails."""
    words = shlex.split(line)
    assert words[0] == "spanloom"
    start = "import sys; from spanloom.cli.main import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", start, *words[1:]], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def make_corpus(directory: Path) -> None:
    """What the README's commands read: corpus/*.jsonl.gz, corpus/*.txt, pairs, questions and a SentencePiece model."""
    import sentencepiece

    sentences = [f"The {a} {b} was {c} in the {d} of number {n}." for n, (a, b, c, d) in enumerate(words())]
    (directory / "corpus").mkdir()
    with gzip.open(directory / "corpus" / "novels.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": " ".join(sentences[i : i + 40])}) + "\n" for i in range(0, 2000, 4))
    (directory / "corpus" / "lines.txt").write_text("\n".join(sentences), encoding="utf-8")
    pairs = [f"{n} and {n}\t{2 * n}" for n in range(300)]
    (directory / "pairs.tsv").write_text("inputs\ttargets\n" + "\n".join(pairs) + "\n", encoding="utf-8")
    (directory / "questions.txt").write_text("7 and 7\n400 and 400\n", encoding="utf-8")
    pair = json.dumps({"inputs": "7 and 7", "targets": ["14", "15"]})
    (directory / "pairs.jsonl").write_text(f"{pair}\n", encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(directory / "corpus" / "lines.txt"),
        model_prefix=str(directory / "my"),
        vocab_size=200,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        hard_vocab_limit=False,
        minloglevel=2,
    )


def words() -> list[tuple[str, str, str, str]]:
    """Two thousand different combinations, the same every time."""
    first = ("old", "small", "grey", "quiet", "young", "long", "open", "first")
    second = ("house", "river", "letter", "garden", "mill", "story", "train", "winter")
    third = ("seen", "lost", "found", "told", "built", "kept", "left", "known")
    fourth = ("village", "valley", "evening", "archive")
    every = [(a, b, c, d) for a in first for b in second for c in third for d in fourth]
    return every[:2000]
