"""`spanloom cache RECIPE`: build the token stores of a recipe beforehand, where `train --out` looks for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.flags import parse
from spanloom.cli.recipe import find
from spanloom.cli.train import output_directory
from spanloom.settings.compare import ChangedSettingsError, changes, refuse, within
from spanloom.settings.run import Run
from spanloom.settings.run_layout import STORES

if TYPE_CHECKING:
    from spanloom.vocabularies.vocabulary import Vocabulary

USAGE = """usage: spanloom cache RECIPE [--out DIR] [--workers N] [flags]

Builds the token stores of a recipe in DIR/stores, where `spanloom train RECIPE --out DIR` finds them. Stores that are
there, up to date and whole (every byte is checked) are left as they are. None takes the place of one that a run in DIR
has learnt from. RECIPE and flags are those of `spanloom train`.

N processes tokenize (as many as there are cores unless told; one alone for text of up to 64 MB); the stores are the
same to the last byte whatever N. What is killed goes on with the last whole shard.

  spanloom cache RECIPE --help    every flag of a recipe, with its meaning and default
"""


@dataclass(frozen=True)
class Building:
    """What cache takes beside the flags of the recipe."""

    workers: int | None = None
    """Processes that tokenize; unset: as many as there are cores, but one alone for text of up to 64 MB."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if argv else 2
    if argv[0].startswith("-"):
        raise UsageError("the recipe comes first: spanloom cache RECIPE [flags]")
    prog = f"spanloom cache {argv[0]}"
    command = parse(find(argv[0]), argv[1:], prog, Building, f"{prog} [--out DIR] [--workers N] [flags]")
    workers = command.options.workers
    if workers is not None and workers < 1:
        raise UsageError(f"--workers {workers}: must be 1 or more")
    directory = output_directory(command)

    from spanloom.cli.run_directory import anchored

    run = anchored(replace(command.run, out=str(directory)), Path.cwd()).resolve()
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.pipeline.data import open_data
    from spanloom.training.progress import make_display

    vocabulary = vocabulary_learnt(run, directory)
    display = make_display()
    try:
        data = open_data(
            run,
            directory,
            vocabulary=vocabulary,
            progress=display.building,
            checksum=True,
            workers=workers or default_workers(),
            warn=display.warn,
        )
    finally:
        display.close()
    for one in data.tasks:
        name = f"{one.task.name}, " if len(data.tasks) > 1 else ""
        for split, report in one.reports.items():
            print(f"{name}{split}: {report.describe()}")
    print(f"stores in {directory / STORES}")
    return 0


def vocabulary_learnt(run: Run, directory: Path) -> "Vocabulary | None":
    """The vocabulary that the run in the directory learnt with, None if there is none.

    Raises CommandError where its stores would be replaced: what a run learns from is decided by `spanloom train`.
    """
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.facts import read_facts
    from spanloom.training.same_data import ChangedDataError, refuse_changed_text, vocabulary_for

    checkpoint = latest(directory)
    if checkpoint is None:
        return None
    facts = read_facts(checkpoint)
    try:
        refuse(change for change in changes(facts.run, run) if within(change.field, ["task"]))
        refuse_changed_text(checkpoint, facts, run, directory, ())
        return vocabulary_for(checkpoint, facts, run, ())
    except (ChangedSettingsError, ChangedDataError) as error:
        raise CommandError(
            f"{directory} has the stores that its run learnt from, and none is built over them. If that run is to go "
            f"on with others, `spanloom train` takes these flags, and builds them; {error}"
        ) from error
