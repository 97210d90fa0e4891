"""Runs that follow one another: trained one after the other, gone on with wherever they were, and compared at the end.

What a stage has trained stands in its own directory, so nothing else needs to be known to go on: stages that were
followed by another one are done, and the first that was not is where training goes on.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.flags import Command, Resuming
from spanloom.cli.train import output_directory, train_one
from spanloom.scale.processes import ALONE, Crew
from spanloom.settings.compare import ChangedSettingsError, changes, check_accepted, refuse
from spanloom.settings.run import Run
from spanloom.settings.run_layout import RUN_FILE, STAGES_FILE
from spanloom.settings.serialize import SettingsError, to_json
from spanloom.settings.stages import linked, stage_directories

FORMAT = 1
_STAGE_DIRECTORY = re.compile(r"([1-9][0-9]*)-(.+)")


def resolved_runs(command: Command[Any]) -> tuple[Run, ...]:
    """The runs that a recipe and its flags ask for, resolved, each with the directory that it writes in `out`.

    One run, or several stages, see `spanloom.settings.stages.linked`. Raises SettingsError where settings contradict
    one another.
    """
    from spanloom.cli.run_directory import anchored

    directory = output_directory(command)
    if len(command.runs) == 1:
        return (anchored(replace(command.run, out=str(directory)), Path.cwd()).resolve(),)
    found = []
    for number, run in enumerate(linked(command.runs, directory), 1):
        try:
            found.append(anchored(run, Path.cwd()).resolve())
        except SettingsError as error:
            raise SettingsError(f"stage {number}, {run.name!r}: {error}") from None
    return tuple(found)


def train_stages(command: Command[Resuming], words: Sequence[str], crew: Crew = ALONE) -> None:
    """Train the stages that are not done, and show what became of every language."""
    from spanloom.pipeline.shared_stores import share_stores
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.lock import directory_lock

    directory = output_directory(command)
    if command.options.fork is not None:
        raise UsageError("--fork goes with one run: name a stage's directory, as in spanloom train OUT/2-de --fork NEW")
    runs = resolved_runs(command)
    places = stage_directories(runs, directory)
    crew.barrier("the stages")  # all see what is there before any trains on
    _check_directory(directory, places)
    for run in runs:
        check_accepted(command.options.accepted, run)
    followed = max((number for number, place in enumerate(places) if latest(place)), default=0)
    with directory_lock(directory) if crew.is_first else contextlib.nullcontext():
        for run, place in zip(runs[:followed], places, strict=False):
            _refuse_changed(run, place)
        for number in range(followed, len(runs)):
            run, place = _as_begun(runs[number], places[number]), places[number]
            if crew.is_first:
                share_stores(run, place, directory)
            title = f"stage {number + 1} of {len(runs)}, {run.name}"
            further = f"spanloom train {shlex.quote(str(directory))} --stage.{number + 1}.steps"

            def note() -> None:
                _write(command, runs, directory)

            if not train_one(
                run,
                place,
                command,
                words,
                crew,
                title=title,
                prepared=note,
                further=further if number + 1 == len(runs) else "",
            ):
                return  # stopped, and said so
    if crew.is_first:
        _show_forgetting(runs, directory)


def _as_begun(run: Run, place: Path) -> Run:
    """The stage with the start that it had: the directory of all may have been moved since."""
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.facts import read_facts

    checkpoint = latest(place)
    return run if checkpoint is None else replace(run, start=read_facts(checkpoint).run.start)


def _refuse_changed(run: Run, place: Path) -> None:
    """Raises CommandError where a stage that another one has gone on from is asked for otherwise than it was."""
    from spanloom.training.checkpoint_paths import latest
    from spanloom.training.facts import read_facts

    checkpoint = latest(place)
    if checkpoint is None:
        raise CommandError(
            f"{place} has no checkpoint, but a later stage has trained: bring it back, or go on with that stage alone: "
            f"spanloom train {place.parent}/N-NAME"
        )
    before = read_facts(checkpoint).run
    found = changes(before, replace(run, start=before.start))
    try:
        refuse(found)
    except ChangedSettingsError as error:
        raise ChangedSettingsError(f"{place} is done, and the next stage has gone on from it: {error}") from None
    if run.steps != before.steps:
        raise CommandError(
            f"{place} is done with {before.steps:,} steps, and the next stage has gone on from it, so that its steps "
            f"cannot be {run.steps:,} now: leave them as they were (--stage.N.steps sets those of one stage), or train "
            "in a new directory with --out NEW_DIR"
        )


def _check_directory(directory: Path, places: Sequence[Path]) -> None:
    """Raises CommandError where `directory` holds a run of its own, or stages that have trained and would be lost."""
    from spanloom.training.checkpoint_paths import latest

    if (directory / RUN_FILE).is_file():
        raise CommandError(
            f"{directory} holds one run, and this recipe makes several that follow one another: --out NEW_DIR"
        )
    if directory.exists() and not directory.is_dir():
        raise CommandError(f"{directory} is a file; give another --out")
    trained = [p for p in _subdirectories(directory) if _STAGE_DIRECTORY.fullmatch(p.name) and latest(p)]
    lost = [path for path in trained if path not in places]
    if lost:
        names = ", ".join(place.name for place in places)
        raise CommandError(
            f"{lost[0]} is a stage that has trained, and the stages asked for are {names}: stages may be added at the "
            "end; give the others as they were, or another --out"
        )


def _subdirectories(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def _write(command: Command[Any], runs: Sequence[Run], directory: Path) -> None:
    """Writes OUT/stages.json: the stages as asked for, without what follows from one another."""
    from spanloom.pipeline.durable import write_file

    plain: list[Run] = []
    for run, asked in zip(runs, command.runs, strict=True):
        named = {task.name for task in asked.eval.also}
        also = tuple(task for task in run.eval.also if task.name in named)
        start = None if plain else run.start
        plain.append(replace(run, start=start, out=None, eval=replace(run.eval, also=also)))
    text = json.dumps({"format": FORMAT, "stages": [to_json(run) for run in plain]}, indent=1) + "\n"
    write_file(directory / STAGES_FILE, lambda file: file.write(text.encode()))


def _show_forgetting(runs: Sequence[Run], directory: Path) -> None:
    from spanloom.training.forgetting import NAME, forgetting_of, in_words, write

    table = forgetting_of(runs, directory)
    if table.tasks:
        write(table, directory)
        print(f"\n{in_words(table)}\n\nwrote {directory / NAME}.json and .md", flush=True)
