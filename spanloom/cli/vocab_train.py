"""`spanloom vocab train --text FILES --size N --out FILE`: a SentencePiece model from text."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from spanloom.cli.errors import CommandError
from spanloom.cli.parsing import options

ABOUT = """A SentencePiece model learnt from text: padding 0, end of sequence 1, unknown 2, sentinels last.

<extra_id_0> is the highest id, as T5 and mT5 have it. The same text and flags give the same file on every machine.
Memory is about 30 times --megabytes.

    spanloom vocab train --text 'corpus/*.txt' --size 8000 --out my.model
    spanloom vocab train --text 'code/*.txt' --unit document --whitespace keep --out code.model
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""

    @dataclass(frozen=True)
    class Options:
        text: tuple[str, ...]
        """Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz."""
        out: str
        """File to write (.model), or a folder, in which it is spiece.model."""
        size: int = 32_000
        """Pieces, special ones included; sentinels come on top, as T5 counts them."""
        sentinels: int = 100
        """Sentinels in the file; 0: none, as in T5's own file, so that whoever uses it appends them."""
        kind: Literal["unigram", "bpe"] = "unigram"
        """How text is cut: unigram (T5's), or bpe."""
        whitespace: Literal["collapse", "keep"] = "collapse"
        """collapse: newlines, tabs and repeated spaces become one space (T5's); keep: they come back as they were."""
        normalization: Literal["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity"] | None = None
        """Rules for characters; unset: nmt_nfkc (T5's), with --whitespace keep identity: all stays as it is."""
        character_coverage: float = 0.9995
        """Share of the text whose characters get pieces of their own."""
        byte_fallback: bool = True
        """Write other characters as bytes; false: they are unknown, as T5 has it."""
        symbols: tuple[str, ...] = ()
        """Strings that are always one piece."""
        megabytes: float = 200.0
        """Text learnt from, at most; if there is more, a random sample of its lines."""
        seed: int = 0
        """Which sample."""
        field: str = "text"
        """Field of a row that holds the text, or a template such as '{title}: {text}'."""
        unit: Literal["line", "document"] = "line"
        """What one document is in a .txt file: each line, or the whole file."""
        format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto"
        """Format of the files; auto goes by the name."""
        encoding: str = "utf-8"
        """Text encoding of the files."""
        errors: Literal["strict", "replace", "skip"] = "strict"
        """What to do with bad input: stop, replace bytes, or skip and count."""
        overwrite: bool = False
        """Replace the file that is there."""

    chosen = options(Options, argv, "spanloom vocab train", "--text FILES --size N --out FILE [flags]", ABOUT)
    from spanloom.cli.progress_bar import ProgressBar
    from spanloom.cli.vocab_texts import read
    from spanloom.pipeline.durable import write_file
    from spanloom.settings.task import TextFiles
    from spanloom.tasks.read_report import ReadReport
    from spanloom.vocabularies import train as learning

    training = learning.Training(
        **{name: getattr(chosen, name) for name in learning.Training.__dataclass_fields__},
    )
    learning.check(training)
    path = _destination(chosen.out, chosen.overwrite)
    source = TextFiles(
        chosen.text,
        heldout_share=0.0,
        field=chosen.field,
        unit=chosen.unit,
        format=chosen.format,
        encoding=chosen.encoding,
        errors=chosen.errors,
    )
    report = ReadReport()
    with ProgressBar("documents", None) as bar, _ended_by_ctrl_c():
        trained = learning.train(_counted(read(source, report), bar), training)
    _destination(chosen.out, chosen.overwrite)  # a file may have come there while the library learnt
    write_file(path, lambda file: file.write(trained.model))
    print(f"text: {report.describe()}")
    print("\n".join(_said(trained, training, path)))
    return 0


def _destination(out: str, overwrite: bool) -> Path:
    """The file to write; nothing is written over unasked."""
    path = Path(out).expanduser()
    path = path if path.suffix == ".model" else path / "spiece.model"
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name a file that ends in .model")
    if path.exists() and not overwrite:
        raise CommandError(f"{path} is there already: name another file, or give --overwrite")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise CommandError(f"{path.parent}: nothing can be written there: choose another place")
    return path


def _counted(texts: Iterable[str], bar: Any) -> Iterator[str]:
    for text in texts:
        yield text
        bar.advance(1)


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """The library learns for minutes without looking at signals: Ctrl-C ends the process, which has written nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _said(trained: Any, training: Any, path: Path) -> Iterator[str]:
    sampled = trained.learnt_lines < trained.lines
    of = f" of {trained.lines:,} (a sample: --megabytes {training.megabytes:g}, --seed {training.seed})"
    yield (
        f"learnt from {trained.learnt_lines:,} lines{of if sampled else ''}, {trained.learnt_bytes / 1e6:,.1f} MB: "
        f"{training.kind}, whitespace {training.whitespace}"
    )
    highest = f", <extra_id_0> is {trained.size - 1:,}" if training.sentinels else " (whoever uses it appends them)"
    yield (
        f"wrote {path}: {trained.size:,} ids, {trained.size - training.sentinels:,} pieces and {training.sentinels} "
        f"sentinels{highest}"
    )
    from spanloom.vocabularies.vocabulary import padded

    size = trained.size if training.sentinels else trained.size + 100
    rows = padded(size)
    yield (
        f"an embedding for its {size:,} ids has {rows:,} rows: spanloom pretrain --text FILES --vocabulary {path} "
        f"--model t5_1_1_small --model.vocab-size {rows} --out DIR"
    )
