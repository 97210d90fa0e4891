"""Texts that the vocab commands read: files by name, one text after another, nothing of them held."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from spanloom.cli.errors import UsageError


def sources(words: Sequence[str], **settings: Any) -> dict[str, Any]:
    """TextFiles by name: NAME=FILES under that name, each other file under its own, without what follows a dot.

    `settings` are fields of TextFiles. Raises UsageError for an empty name, BadInputError where there is no such file.
    """
    from spanloom.settings.task import TextFiles
    from spanloom.tasks.file_lists import list_files

    files: dict[str, list[str]] = {}
    for word in words:
        name, equals, pattern = word.partition("=")
        if equals and not Path(word).exists():
            if not name.strip() or not pattern.strip():
                raise UsageError(f"--text {word!r}: must be FILES or NAME=FILES, such as de='corpus/de/*.txt'")
            files.setdefault(name, []).append(pattern)
            continue
        for path in list_files((word,)):
            files.setdefault(Path(path).name.partition(".")[0] or path, []).append(path)
    return {name: TextFiles(tuple(paths), heldout_share=0.0, **settings) for name, paths in files.items()}


def read(source: Any, report: Any = None) -> Iterator[str]:
    """The texts of a source, in order. Raises BadInputError for bad input, as `source.errors` says."""
    from spanloom.tasks.read_report import ReadReport
    from spanloom.tasks.sources import read_examples

    for example in read_examples(source, "train", report or ReadReport()):
        yield example["text"]
