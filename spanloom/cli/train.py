"""`spanloom train RECIPE`: begin a run, or go on with it."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanloom.cli.errors import UsageError
from spanloom.cli.flags import Command, Resuming, parse
from spanloom.cli.recipe import Recipe, find

USAGE = """usage: spanloom train RECIPE [--out DIR] [--steps N] [flags]

Begins a run, or goes on with it where it stopped: the same command with the same --out directory resumes.
RECIPE is the name of a shipped recipe (`spanloom recipes` lists them), a .py file with a function `recipe`
that returns a Run, or a run directory.

  spanloom train quickstart                    a small model in five minutes, text included
  spanloom train runs/quickstart --steps 2000  a longer run of what is there
  spanloom train my_recipe.py --out runs/mine  a recipe of your own
  spanloom train RECIPE --help                 every flag of a recipe, with its meaning and default
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if argv else 2
    if argv[0].startswith("-"):
        raise UsageError(
            "the recipe comes first: spanloom train RECIPE [flags]; `spanloom recipes` lists those that ship"
        )
    return train(find(argv[0]), argv[1:], f"spanloom train {argv[0]}")


def train(recipe: Recipe, argv: Sequence[str], prog: str, usage: str | None = None) -> int:
    """Train the run that a recipe and its flags ask for."""
    command = parse(recipe, argv, prog, Resuming, usage)
    start_run(command, [*prog.split(" "), *argv])
    return 0


def start_run(command: Command[Resuming], words: Sequence[str]) -> None:
    """Prepare the run directory, train, and show what came of it."""
    from spanloom.cli.run_directory import anchored, check_name, prepare

    directory = output_directory(command)
    for place in (str(directory), command.options.fork or ""):
        check_name(place)
    if command.options.fork is not None and not command.options.fork.strip():
        raise UsageError("--fork is empty: name a new directory (is a variable of the shell unset?)")
    run = anchored(replace(command.run, out=str(directory)), Path.cwd()).resolve()
    start = prepare(
        run,
        directory,
        command=words,
        recipe_source=command.recipe.source,
        accepted=command.options.accepted,
        fork=None if command.options.fork is None else Path(command.options.fork),
    )
    if start.step is None:
        print(f"run {run.name}: beginning in {start.directory}", flush=True)
    else:
        print(f"run {run.name}: going on from step {start.step} in {start.directory}", flush=True)
    for change in start.changed:
        print(f"  changed: {change}", flush=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's banners are not news to a user
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.training.loop import train as train_loop

    if not train_loop(start.run, start.directory, accepted=start.accepted, workers=default_workers()):
        return  # stopped, and said so
    from spanloom.cli.closing import close_run

    close_run(start.run, start.directory)
    sys.stdout.flush()


def output_directory(command: Command[Any]) -> Path:
    """--out, the run directory that goes on, or runs/NAME. Raises UsageError for an empty name."""
    recipe = command.recipe
    if "out" in command.asked and not (command.run.out or "").strip():
        raise UsageError("--out is empty: name a directory, or leave it out (is a variable of the shell unset?)")
    if "out" in command.asked and command.run.out:
        return Path(command.run.out)
    if recipe.directory is not None:
        return recipe.directory
    return Path(command.run.out or f"runs/{recipe.name}")
