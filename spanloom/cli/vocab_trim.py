"""`spanloom vocab trim CHECKPOINT OUT --text FILES`: a model with only the pieces that a text needs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from spanloom.cli.parsing import options

ABOUT = """A model with only the pieces that your text needs, and their rows, as a folder that Hugging Face loads.

Special pieces, sentinels, bytes and single characters stay. Text that needs kept pieces alone is cut as before and gets
the same logits, which is checked. OUT/kept_pieces.tsv has old id, new id, piece and count.

    spanloom vocab trim mt5-small trimmed --text 'de/*.txt' --coverage 0.9999
    spanloom vocab trim runs/a trimmed --text 'de/*.txt' 'en/*.jsonl' --keep 20000
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    from tyro.conf import Positional, arg

    @dataclass(frozen=True)
    class Options:
        source: Annotated[Positional[str], arg(metavar="CHECKPOINT")]
        """A run, one of its checkpoints/STEP, a Hugging Face folder or a T5X checkpoint."""
        destination: Annotated[Positional[str], arg(metavar="OUT")]
        """Folder to write."""
        text: tuple[str, ...]
        """Files or globs, or NAME=FILES: .txt, .jsonl, .csv, .tsv, .parquet; compressed ones too."""
        keep: int | None = None
        """Keep so many pieces, sentinels not counted: the most frequent ones."""
        min_count: int | None = None
        """Keep pieces that the text uses so often, or more."""
        coverage: float | None = None
        """Keep the fewest pieces that make up this share of the text's tokens; 1: all that it uses."""
        multiple: int = 128
        """The rows of the embedding become a multiple of this."""
        which: str = "last"
        """Checkpoint of a run: last, best, or a step."""
        vocabulary: str | None = None
        """SentencePiece model of a T5X checkpoint, or of a Hugging Face folder without one; unset: found beside it."""
        overwrite: bool = False
        """Replace what was exported there from another run."""
        field: str = "text"
        """Field of a row that holds the text, or a template such as '{title}: {text}'."""
        format: Literal["auto", "txt", "jsonl", "csv", "tsv", "parquet"] = "auto"
        """Format of the files; auto goes by the name."""
        encoding: str = "utf-8"
        """Text encoding of the files."""
        errors: Literal["strict", "replace", "skip"] = "strict"
        """What to do with bad input: stop, replace bytes, or skip and count."""

    usage = "CHECKPOINT OUT --text FILES --coverage 0.9999 [flags]"
    chosen = options(Options, argv, "spanloom vocab trim", usage, ABOUT)
    from spanloom.cli.errors import UsageError
    from spanloom.cli.vocab_texts import read, sources
    from spanloom.vocabularies.trim import Choice, check

    choice = Choice(chosen.keep, chosen.min_count, chosen.coverage)
    check(choice)
    if chosen.multiple < 1:
        raise UsageError(f"--multiple {chosen.multiple}: must be 1 or more")
    settings = {name: getattr(chosen, name) for name in ("field", "format", "encoding", "errors")}
    named = sources(chosen.text, **settings)

    def texts() -> Iterator[tuple[str, str]]:
        for name, source in named.items():
            for text in read(source):
                yield from ((name, line) for line in text.split("\n") if line.strip())

    from spanloom.conversion.trim import trim_to_hf
    from spanloom.training.read_model import read_model

    source = read_model(Path(chosen.source).expanduser(), chosen.which, chosen.vocabulary)
    report = trim_to_hf(
        source,
        texts,
        choice,
        Path(chosen.destination).expanduser(),
        multiple=chosen.multiple,
        overwrite=chosen.overwrite,
        progress=print,
    )
    print(report.describe())
    return 0
