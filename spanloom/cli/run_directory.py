"""The run directory as the commands see it: begun or not, the same settings or not, forked, and what was decided.

OUT/run.json         the run, complete enough to repeat it: `spanloom train OUT/run.json --out ELSEWHERE`
OUT/commands.jsonl   one line a start: the command, where and when, the version, settings changed on the way
OUT/recipe.py        the recipe file as it was at the last start
"""

import datetime
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import spanloom
from spanloom.cli.errors import CommandError
from spanloom.cli.recipe import read_run
from spanloom.pipeline.durable import write_file
from spanloom.settings.compare import Change, ChangedSettingsError, changes, check_accepted, refuse
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, PARTIAL, RUN_FILE
from spanloom.settings.task import PairFiles, TextFiles
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.checkpoint_paths import latest
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
    """Decide whether a resolved run begins or goes on in `directory`, and write down what was decided.

    Raises ChangedSettingsError, with a diff and the ways on, if a setting that decides the result was changed and not
    accepted; DirectoryInUseError if another process trains there; CommandError if there is nothing to fork from, or
    the new directory is taken. Nothing is written in any of these cases.
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
            found = changes(read_run(directory), run)
            if checkpoint is not None:
                _refuse(found, accepted, directory)
        elif checkpoint is not None:
            raise CommandError(
                f"{directory} holds checkpoints, but no {RUN_FILE}; restore that file or give another --out"
            )
        start = Start(
            directory, run, None if checkpoint is None else int(checkpoint.name), tuple(found), tuple(accepted)
        )
        _write(start, command, recipe_source)
    return start


def anchored(run: Run, base: Path) -> Run:
    """The run with relative paths of files made absolute, so that it can go on from another working directory."""
    source, vocabulary, start = run.task.source, run.task.vocabulary, run.start
    if isinstance(source, TextFiles | PairFiles):
        files = tuple(_anchor(name, base) for name in source.files)
        source = replace(source, files=files, heldout_files=tuple(_anchor(name, base) for name in source.heldout_files))
    if isinstance(vocabulary, SentencePiece):
        vocabulary = replace(vocabulary, path=_anchor(vocabulary.path, base))
    task = replace(run.task, source=source, vocabulary=vocabulary)
    return replace(run, task=task, start=None if start is None else _anchor(start, base))


def _anchor(name: str, base: Path) -> str:
    if "://" in name or not name or os.path.isabs(name):
        return name
    return os.path.normpath(base / os.path.expanduser(name))


def _refuse(found: list[Change], accepted: Sequence[str], directory: Path) -> None:
    try:
        refuse(found, accepted)
    except ChangedSettingsError as error:
        raise ChangedSettingsError(f"{directory}: {error}") from None


def _fork(run: Run, old: Path, new: Path, command: Sequence[str], recipe_source: Path | None) -> Start:
    checkpoint = latest(old)
    if checkpoint is None:
        raise CommandError(f"--fork {new}: {old} has no checkpoint to go on from; give --out {new} to begin there")
    if (new / RUN_FILE).exists() or latest(new) is not None:
        raise CommandError(f"--fork {new}: there is a run in it already; go on with it by --out {new}, or name another")
    found = changes(read_run(old), run)
    refuse([c for c in found if c.shapes])
    with directory_lock(new):
        place = new / CHECKPOINTS / checkpoint.name
        partial = place.with_name(place.name + PARTIAL)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(checkpoint, partial)
        partial.rename(place)
        # The checkpoint first: settings alone, left by a kill, would begin again from nothing.
        start = Start(new, replace(run, out=str(new)), int(checkpoint.name), tuple(found), accepted=("task",))
        _write(start, command, recipe_source, forked_from=str(checkpoint.resolve()))
    return start


def _write(start: Start, command: Sequence[str], recipe_source: Path | None, **more: str) -> None:
    write_run(start.run, start.directory)
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
