"""The run directory as the commands see it: begun or not, the same settings or not, forked, and what was decided.

OUT/run.json         the run, complete enough to repeat it: `spanloom train OUT/run.json --out ELSEWHERE`
OUT/commands.jsonl   one line a start: the command, where and when, the version, settings changed on the way
OUT/recipe.py        the recipe file as it was at the last start
"""

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import spanloom
from spanloom.cli.errors import CommandError
from spanloom.cli.recipe import read_run
from spanloom.pipeline.durable import write_file
from spanloom.settings.compare import Change, ChangedSettingsError, changes, check_accepted, refuse
from spanloom.settings.mixture import map_tasks
from spanloom.settings.run import Run
from spanloom.settings.run_layout import RUN_FILE
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.checkpoint_paths import copy_checkpoint, latest
from spanloom.training.integrity import MANIFEST
from spanloom.training.lock import directory_lock
from spanloom.training.run_file import write_run

COMMANDS_FILE = "commands.jsonl"
RECIPE_FILE = "recipe.py"


@dataclass(frozen=True)
class Start:
    """How a run begins or goes on."""

    directory: Path
    run: Run
    """Resolved."""
    step: int | None
    """Step of the checkpoint it goes on from; None at the beginning."""
    changed: tuple[Change, ...] = ()
    """Settings that differ from those the run began with, free or accepted."""
    accepted: tuple[str, ...] = ()
    """Fields, or groups of them, whose changes are accepted, those of the data that they name included."""


def prepare(
    run: Run,
    directory: Path,
    *,
    command: Sequence[str],
    recipe_source: Path | None = None,
    accepted: Sequence[str] = (),
    fork: Path | None = None,
) -> Start:
    """Decide whether a resolved run begins or goes on in `directory`, and write down the command.

    The settings of a run that has trained are not written here but by the loop, once the data are found to fit them:
    what fails there binds nobody.

    Raises ChangedSettingsError, with a diff and the ways on, if a setting that decides the result was changed and not
    accepted; DirectoryInUseError if another process trains there; CommandError if the run has done more steps than are
    asked for, if there is nothing to fork from, or the new directory is taken. Nothing is written in these cases.
    """
    check_accepted(accepted, run)
    if fork is not None:
        return _fork(run, directory, fork, command, recipe_source)
    if directory.exists() and not directory.is_dir():
        raise CommandError(f"{directory} is a file; give another --out")
    with directory_lock(directory):
        found: list[Change] = []
        checkpoint = latest(directory)
        if (directory / RUN_FILE).is_file():
            old = read_run(directory)
            found = changes(old, run)
            if checkpoint is not None:
                _refuse_fewer_steps(old, run, directory, int(checkpoint.name))
                _refuse(found, accepted, directory)
        elif checkpoint is not None:
            raise CommandError(
                f"{directory} holds checkpoints, but no {RUN_FILE}; restore that file, give another --out or, if it is "
                "an unfinished fork, that command with --fork again"
            )
        start = Start(
            directory, run, None if checkpoint is None else int(checkpoint.name), tuple(found), tuple(accepted)
        )
        if checkpoint is None:
            write_run(run, directory)
        _write(start, command, recipe_source)
    return start


def anchored(run: Run, base: Path) -> Run:
    """The run with relative paths of files made absolute, so that it can go on from another working directory."""
    task = map_tasks(run.task, lambda task: _anchored_task(task, base))
    return replace(run, task=task, start=None if run.start is None else _anchor(run.start, base))


def _anchored_task(task: Task, base: Path) -> Task:
    source, vocabulary = task.source, task.vocabulary
    if isinstance(source, TextFiles | PairFiles):
        files = tuple(_anchor(name, base) for name in source.files)
        source = replace(source, files=files, heldout_files=tuple(_anchor(name, base) for name in source.heldout_files))
    if isinstance(vocabulary, SentencePiece):
        vocabulary = replace(vocabulary, path=_anchor(vocabulary.path, base))
    return replace(task, source=source, vocabulary=vocabulary)


def _anchor(name: str, base: Path) -> str:
    if "://" in name or not name or os.path.isabs(name):
        return name
    return os.path.normpath(base / os.path.expanduser(name))


def _refuse(found: list[Change], accepted: Sequence[str], directory: Path) -> None:
    try:
        refuse(found, accepted)
    except ChangedSettingsError as error:
        raise ChangedSettingsError(f"{directory}: {error}") from None


def _refuse_fewer_steps(old: Run, run: Run, directory: Path, step: int) -> None:
    if run.steps < step:
        own = f" (spanloom train {directory} goes on with the {old.steps:,} it has)" if old.steps >= step else ""
        raise CommandError(
            f"{directory} has done {step:,} steps, and {run.steps:,} are asked for; steps count from a run's "
            f"beginning. Give --steps {step} or more{own}, or train a shorter run in a new directory with --out NEW_DIR"
        )


def _fork(run: Run, old: Path, new: Path, command: Sequence[str], recipe_source: Path | None) -> Start:
    checkpoint = latest(old)
    if checkpoint is None:
        raise CommandError(f"--fork {new}: {old} has no checkpoint to go on from; give --out {new} to begin there")
    before = read_run(old)
    found = changes(before, run)
    _refuse_fewer_steps(before, run, old, int(checkpoint.name))
    refuse([c for c in found if c.shapes])
    with directory_lock(new):
        there = latest(new)
        if there is not None and ((new / RUN_FILE).exists() or not _same(there, checkpoint)):
            raise CommandError(
                f"--fork {new}: there is a run in it already; go on with it by --out {new}, or name another"
            )
        (new / RUN_FILE).unlink(missing_ok=True)  # of a run that never trained
        if there is None:
            copy_checkpoint(checkpoint, new)
        start = Start(new, replace(run, out=str(new)), int(checkpoint.name), tuple(found), accepted=("task",))
        _write(start, command, recipe_source, forked_from=str(checkpoint.resolve()))
    return start


def _same(first: Path, second: Path) -> bool:
    """Whether one checkpoint is a copy of the other: manifests hold the sums of all files."""
    return (first / MANIFEST).is_file() and (first / MANIFEST).read_bytes() == (second / MANIFEST).read_bytes()


def _write(start: Start, command: Sequence[str], recipe_source: Path | None, **more: str) -> None:
    if recipe_source is not None and recipe_source.resolve() != (start.directory / RECIPE_FILE).resolve():
        source = recipe_source.read_bytes()
        write_file(start.directory / RECIPE_FILE, lambda file: file.write(source))
    entry = {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": list(command),
        "directory": os.getcwd(),
        "version": spanloom.__version__,
        "step": start.step,
        "changed": [str(change) for change in start.changed],
        **more,
    }
    with open(start.directory / COMMANDS_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(entry) + "\n")  # ASCII: words may hold bytes that are no UTF-8
