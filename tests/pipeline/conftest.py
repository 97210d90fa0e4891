"""Files for the tests of the pipeline."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Write = Callable[..., str]


@pytest.fixture
def write_texts(tmp_path: Path) -> Write:
    """Writes documents to a JSONL file, whose path it returns."""

    def write(texts: Sequence[str], name: str = "corpus.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def write_pairs(tmp_path: Path) -> Write:
    """Writes (inputs, targets) pairs to a JSONL file, whose path it returns."""

    def write(pairs: Sequence[tuple[str, str]], name: str = "pairs.jsonl") -> str:
        path = tmp_path / name
        lines = (json.dumps({"inputs": inputs, "targets": targets}) + "\n" for inputs, targets in pairs)
        path.write_text("".join(lines), encoding="utf-8")
        return str(path)

    return write
