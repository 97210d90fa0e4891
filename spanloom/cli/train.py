"""`spanloom train RECIPE`: begin a run, or go on with it."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.flags import Command, Resuming, parse
from spanloom.cli.recipe import Recipe, find
from spanloom.cli.tokens import first_word
from spanloom.scale.processes import ALONE, Crew, connected
from spanloom.settings.mesh import AXES
from spanloom.settings.run import Run
from spanloom.settings.run_layout import STAGES_FILE

if TYPE_CHECKING:
    from spanloom.cli.run_directory import Start

USAGE = """usage: spanloom train RECIPE [--out DIR] [--steps N] [flags]

Begins a run, or goes on with it where it stopped: the same command with the same --out directory resumes.
RECIPE is the name of a shipped recipe (`spanloom recipes` lists them), a .py file with a function `recipe`
that returns a Run, or a list of them that follow one another (stages: language after language), or a run directory.
Stages are written to OUT/1-NAME, OUT/2-NAME, ..., each a run directory; the command goes on inside any of them.

  spanloom train quickstart                    a small model in three minutes, text included
  spanloom train runs/quickstart --steps 2000  a longer run of what is there
  spanloom train my_recipe.py --out runs/mine  a recipe of your own
  spanloom train stages.py --stage.2.steps 500 a flag holds for all stages, with its number for one
  spanloom train RECIPE --help                 every flag of a recipe, with its meaning and default
"""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    known = "`spanloom recipes` lists those that ship"
    recipe = first_word(argv, USAGE, f"the recipe comes first: spanloom train RECIPE [flags]; {known}")
    return train(find(recipe), argv[1:], f"spanloom train {recipe}")


def train(recipe: Recipe, argv: Sequence[str], prog: str, usage: str | None = None) -> int:
    """Train the run that a recipe and its flags ask for."""
    command = parse(recipe, argv, prog, Resuming, usage)
    words = [*prog.split(" "), *argv]
    from spanloom.cli.run_directory import check_name

    directory = output_directory(command)
    for place in (str(directory), command.options.fork or ""):
        check_name(place)
    if command.options.fork is not None and not command.options.fork.strip():
        raise UsageError("--fork is empty: name a new directory (is a variable of the shell unset?)")
    _no_address(command.options.fork or "", "--fork")
    with connected(command.options.together) as crew:
        _train(command, directory, words, crew)
    return 0


def _train(command: Command[Resuming], directory: Path, words: Sequence[str], crew: Crew) -> None:
    from spanloom.cli.stages import resolved_runs, train_stages

    if len(command.runs) > 1:
        train_stages(command, words, crew)
        return
    if (directory / STAGES_FILE).is_file():
        raise CommandError(f"{directory} holds runs that follow one another, and this recipe makes one: --out NEW_DIR")
    (run,) = resolved_runs(command)
    train_one(run, directory, command, words, crew)


def train_one(
    run: Run,
    directory: Path,
    command: Command[Resuming],
    words: Sequence[str],
    crew: Crew = ALONE,
    *,
    title: str = "",
    prepared: Callable[[], object] = lambda: None,
    further: str | None = None,
) -> bool:
    """Prepare the run directory, train, and show what came of it; whether all is done, or a stop ended it before.

    Of several processes, `crew`, the first one writes. Of several runs, `title` says which this is. `prepared` is
    called before the run trains. `further`: see `close_run`.
    """
    from spanloom.cli.run_directory import prepare
    from spanloom.training.together import check_together, write_token

    with crew.first_before_others("the settings"):
        start = prepare(
            run,
            directory,
            command=words,
            recipe_source=command.recipe.source,
            accepted=command.options.accepted,
            fork=None if command.options.fork is None else Path(command.options.fork),
            writes=crew.is_first,
        )
        if crew.is_first:
            if crew.processes > 1:
                write_token(start.directory)
            prepared()
            _say_start(start, title or f"run {run.name}")
    if crew.processes > 1:
        check_together(crew, start.run, start.directory)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's banners are not news to a user
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.training.loop import train as train_loop

    if not train_loop(start.run, start.directory, accepted=start.accepted, workers=default_workers(), crew=crew):
        return False  # stopped, and said so
    if crew.processes > 1:
        if crew.is_first:
            one = "".join(f" --mesh.{axis} 1" for axis in AXES if getattr(run.mesh, axis) not in (1, "auto"))
            place = shlex.quote(str(start.directory))
            print(f"for results and an export, on one device: spanloom train {place}{one}", flush=True)
        return True
    from spanloom.cli.closing import close_run

    close_run(start.run, start.directory, further)
    sys.stdout.flush()
    return True


def _say_start(start: "Start", name: str) -> None:
    if start.step is None:
        print(f"{name}: beginning in {start.directory}", flush=True)
    else:
        print(f"{name}: going on from step {start.step} in {start.directory}", flush=True)
    for change in start.changed:
        print(f"  changed: {change}", flush=True)


def output_directory(command: Command[Any]) -> Path:
    """--out, the run directory that goes on, or runs/NAME. Raises UsageError for an empty name, and for an address."""
    recipe = command.recipe
    if "out" in command.asked and not (command.run.out or "").strip():
        raise UsageError("--out is empty: name a directory, or leave it out (is a variable of the shell unset?)")
    if "out" in command.asked and command.run.out:
        return Path(_no_address(command.run.out))
    if recipe.directory is not None:
        return recipe.directory
    return Path(_no_address(command.run.out or f"runs/{recipe.name}"))


def _no_address(out: str, flag: str = "--out") -> str:
    """A directory. As the name of one, `s3://bucket/a` would be a folder here, and nothing in the bucket."""
    if "://" in out:
        raise UsageError(
            f"{flag} {out}: a run is written into a directory, which has locks and files that are mapped into memory. "
            "Name one of this machine, of a network file system, or of a bucket that is mounted (gcsfuse); "
            f"--log.copy-to {out} copies metrics and results there"
        )
    return out
