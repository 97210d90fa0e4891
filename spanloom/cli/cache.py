"""`spanloom cache RECIPE`: build the token stores of a recipe beforehand, where `train --out` looks for them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spanloom.cli.errors import UsageError
from spanloom.cli.flags import parse
from spanloom.cli.recipe import find
from spanloom.cli.tokens import split, take
from spanloom.cli.train import output_directory
from spanloom.settings.run_layout import STORES

USAGE = """usage: spanloom cache RECIPE [--out DIR] [--workers N] [flags]

Builds the token stores of a recipe in DIR/stores, where `spanloom train RECIPE --out DIR` finds them. Stores that are
there, up to date and whole (every byte is checked) are left as they are. RECIPE and flags are those of
`spanloom train`.

N processes tokenize (as many as there are cores unless told; one alone for text of up to 64 MB); the stores are the
same to the last byte whatever N. What is killed goes on with the last whole shard.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if argv else 2
    if argv[0].startswith("-"):
        raise UsageError("the recipe comes first: spanloom cache RECIPE [flags]")
    words, flags = split(argv[1:])
    workers = _workers(take(flags, "workers"))
    command = parse(
        find(argv[0]), [*words, *(w for f in flags for w in (f.typed, *f.values))], f"spanloom cache {argv[0]}"
    )
    directory = output_directory(command)

    from spanloom.cli.run_directory import anchored

    run = anchored(replace(command.run, out=str(directory)), Path.cwd()).resolve()
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.pipeline.data import open_data
    from spanloom.training.progress import make_display

    display = make_display()
    try:
        data = open_data(
            run,
            directory,
            progress=display.building,
            checksum=True,
            workers=workers or default_workers(),
            warn=display.warn,
        )
    finally:
        display.close()
    for split_name, report in data.reports.items():
        print(f"{split_name}: {report.describe()}")
    print(f"stores in {directory / STORES}")
    return 0


def _workers(text: str | None) -> int | None:
    """The number asked for, if one is."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"--workers {text}: must be a number of processes, 1 or more")
    return int(text)
