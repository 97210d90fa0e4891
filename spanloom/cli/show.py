"""`spanloom show RECIPE`: a run's examples as the model will see them, and what there is to know of its data."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.cli.errors import UsageError
from spanloom.cli.flags import parse
from spanloom.cli.page_file import page_file
from spanloom.cli.recipe import find
from spanloom.cli.task_names import tasks_named
from spanloom.cli.terminal import width_and_colour
from spanloom.cli.tokens import first_word
from spanloom.cli.train import output_directory
from spanloom.settings.run import Run
from spanloom.settings.stages import as_one, stage_directories

if TYPE_CHECKING:
    from spanloom.pipeline.data import Data
    from spanloom.pipeline.facts.run import RunFacts
    from spanloom.training.progress import Display

USAGE = """usage: spanloom show RECIPE [--task NAME ...] [-n 5] [--batch] [--ids] [--html FILE] [flags]

Shows what a model will learn from, before it does: the first examples that training draws, inputs and targets as text
with each masked span in its colour on both sides; then how much there is of each task, how often it is drawn in the
planned steps, how long its inputs and targets are, what padding and cutting cost, and a warning for what does not fit:
cut targets, text that the vocabulary lacks, sentinels in the text, copies, text that is read too often.

RECIPE and flags are those of `spanloom train`: a recipe's name, a .py file or a run directory. Stores that are missing
in the run directory (--out DIR) are built there, as `spanloom cache` does; nothing else is written. Of stages each is
shown, one after another.

  spanloom show quickstart                          examples and tables
  spanloom show quickstart -n 0                     tables and warnings alone
  spanloom show my_recipe.py --task en --ids        one task of a mixture, with token ids
  spanloom show runs/mine --batch                   the first training batch, row by row: padding, packed segments
  spanloom show my_recipe.py --html data.html       the same as one page to keep or to send
  spanloom show RECIPE --help                       every flag of a recipe, with its meaning and default
"""
_EXAMPLES = 5
_MANY_TASKS = 4


@dataclass(frozen=True)
class Showing:
    """What show takes beside the flags of the recipe."""

    task: tuple[str, ...] = ()
    """Names of the tasks to show; none: all."""
    examples: int | None = None
    """Examples of each task, and rows of the batch in full (-n for short); unset: 5, and 1 of each of many tasks."""
    batch: bool = False
    """Show the first training batch, too: its rows, the segments packed into them, and their padding."""
    ids: bool = False
    """Show token ids under the text."""
    html: str | None = None
    """Write all of it as one page into this file instead; the page needs no other."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    recipe = first_word(argv, USAGE, "the recipe comes first: spanloom show RECIPE [flags]")
    prog = f"spanloom show {recipe}"
    usage = f"{prog} [--task NAME ...] [-n 5] [--batch] [--ids] [--html FILE] [flags]"
    command = parse(find(recipe), _long(argv[1:]), prog, Showing, usage)
    asked = command.options
    if asked.examples is not None and asked.examples < 0:
        raise UsageError(f"-n {asked.examples}: must be 0 or more")
    page = None if asked.html is None else page_file("--html", asked.html, "data.html")

    from spanloom.cli.stages import resolved_runs

    directory = output_directory(command)
    runs = resolved_runs(command)
    if len(runs) == 1:
        _show(runs[0], directory, asked, page)
    else:
        _show_stages(runs, directory, asked, page)
    return 0


def _show(run: Run, directory: Path, asked: Showing, page: Path | None) -> None:
    tasks_named(run, asked.task)
    facts = _collect(run, directory, asked)
    if page is None:
        _print(facts, asked)
    else:
        _write(facts, asked, page)


def _show_stages(runs: Sequence[Run], directory: Path, asked: Showing, page: Path | None) -> None:
    """Each stage as a run of its own; --task leaves out stages without such a task, and each has a page of its own."""
    from spanloom.pipeline.shared_stores import share_stores

    tasks_named(as_one(runs), asked.task)
    for number, (run, place) in enumerate(zip(runs, stage_directories(runs, directory), strict=True), 1):
        names = tuple(task.name for task in run.tasks if task.name in asked.task)
        if asked.task and not names:
            continue
        if page is None:
            print(f"== stage {number} of {len(runs)}, {run.name}\n", flush=True)
        own = None if page is None else page.with_name(f"{page.stem}-{place.name}{page.suffix}")
        share_stores(run, place, directory)
        _show(run, place, replace(asked, task=names), own)


def _long(argv: Sequence[str]) -> list[str]:
    """The words with -n, -n5 and -n=5 as --examples."""
    found: list[str] = []
    for word in argv:
        if word.startswith("-n") and (word == "-n" or word[2:].lstrip("=-").isdigit()):
            found += ["--examples", *([word[2:].removeprefix("=")] if word[2:] else [])]
        else:
            found.append(word)
    return found


def _collect(run: Run, directory: Path, asked: Showing) -> "RunFacts":
    """Opens the data, building what is missing, and looks at them."""
    from spanloom.pipeline.facts.run import run_facts
    from spanloom.training.progress import make_display

    display = make_display(sys.stderr)  # what is shown may go to a file
    try:
        data = _open(run, directory, display)
        names = [task.name for task in tasks_named(run, asked.task)]
        tasks = [one for one in data.tasks if one.task.name in names]
        few = _EXAMPLES if len(tasks) <= _MANY_TASKS else 1
        examples = few if asked.examples is None else asked.examples
        return run_facts(run, data, tasks, examples=examples, rows=max(examples, 1) if asked.batch else 0)
    finally:
        display.close()


def _open(run: Run, directory: Path, display: "Display") -> "Data":
    from spanloom.cli.cache import vocabulary_learnt
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.pipeline.data import open_data
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.facts import read_facts

    vocabulary, checkpoint = vocabulary_learnt(run, directory), latest(directory)
    return open_data(
        run,
        directory,
        vocabulary=vocabulary,
        resumption=None if checkpoint is None else read_facts(checkpoint).resumption,
        progress=display.building,
        workers=default_workers(),
        warn=display.warn,
    )


def _print(facts: "RunFacts", asked: Showing) -> None:
    from spanloom.report.terminal import render

    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="backslashreplace")  # a terminal that lacks a script shows its codes
    width, colour = width_and_colour(out)
    for section in render(facts, width=width, colour=colour, ids=asked.ids, batch=asked.batch):
        out.write(section)


def _write(facts: "RunFacts", asked: Showing, path: Path) -> None:
    from spanloom.pipeline.durable import write_file
    from spanloom.report.page import page

    content = page(facts, ids=asked.ids, batch=asked.batch).encode()
    write_file(path, lambda file: file.write(content))
    for text in facts.warnings:
        print(f"warning: {text}")
    print(f"{path}: the data of run {facts.name} as a page ({len(content):,} bytes)")
