"""Pages of documentation as tests read them: blocks, commands, links; and a corpus for commands that run."""

import gzip
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = (*sorted((ROOT / "docs").glob("*.md")), CONTRIBUTING)

FEW_STEPS = ("--steps", "2", "--batch_size", "4", "--eval.max-batches", "1")
"""What a test adds to a command that trains and names no number of steps itself."""


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(page: Path) -> list[str]:
    """The lines of a page's `sh` blocks in order, comments cut, continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def kinds(page: Path) -> set[str]:
    """Kinds of the page's blocks: sh, text, python, ..."""
    return set(re.findall(r"^```(\w+)", read(page), re.MULTILINE))


def marked(page: Path, mark: str) -> str:
    """The block after a comment with that mark."""
    return read(page).split(f"<!-- {mark} -->")[1].split("```")[1].partition("\n")[2]


def files(page: Path) -> dict[str, str]:
    """The blocks that are files: those after a comment with a file's name."""
    names = re.findall(r"^<!-- ([\w./]+\.\w+) -->$", read(page), re.MULTILINE)
    return {name: marked(page, name) for name in names}


def links(page: Path) -> list[Path]:
    """What the page links to in this repository."""
    named = re.findall(r"\]\(((?!http|#)[^)#]+)(?:#[^)]*)?\)", read(page))
    return [(page.parent / name).resolve() for name in named]


def make_corpus(directory: Path) -> None:
    """What commands read: corpus/*.jsonl.gz, corpus/*.txt, pairs, questions and a SentencePiece model."""
    import sentencepiece

    sentences = [f"The {a} {b} was {c} in the {d} of number {n}." for n, (a, b, c, d) in enumerate(_words())]
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


def _words() -> list[tuple[str, str, str, str]]:
    """Two thousand different combinations, the same every time."""
    first = ("old", "small", "grey", "quiet", "young", "long", "open", "first")
    second = ("house", "river", "letter", "garden", "mill", "story", "train", "winter")
    third = ("seen", "lost", "found", "told", "built", "kept", "left", "known")
    fourth = ("village", "valley", "evening", "archive")
    every = [(a, b, c, d) for a in first for b in second for c in third for d in fourth]
    return every[:2000]
