"""The run directory as the commands see it: begun or not, the same settings or not, forked, and what was decided.

OUT/run.json         the run, complete enough to repeat it: `spanloom train OUT/run.json --out ELSEWHERE`
OUT/commands.jsonl   one line a start, see `spanloom.cli.commands_file`
OUT/recipe.py        the recipe file as it was at the last start
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spanloom.cli.commands_file import accepted_at, add_command, forked_from
from spanloom.cli.errors import CommandError
from spanloom.cli.recipe import read_run
from spanloom.pipeline.durable import write_file
from spanloom.settings.compare import Change, ChangedSettingsError, changes, check_accepted, refuse, within
from spanloom.settings.feature import Feature
from spanloom.settings.mixture import map_tasks
from spanloom.settings.row_sources import HuggingFaceDataset, RecordFiles, RowFiles, SeqioCaches, TfdsFolder
from spanloom.settings.run import Run
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, RUN_FILE
from spanloom.settings.task import PairFiles, Source, Task, TextFiles
from spanloom.settings.vocabulary import SentencePiece
from spanloom.training.checkpoint_paths import copy_checkpoint, latest
from spanloom.training.facts import read_facts
from spanloom.training.lock import directory_lock
from spanloom.training.lost import refuse_lost
from spanloom.training.run_file import write_run

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
    writes: bool = True,
) -> Start:
    """Decide whether a resolved run begins or goes on in `directory`, and write down the command.

    The settings of a run that has trained are not written here but by the loop, once the data are found to fit them:
    what fails there binds nobody.

    Without `writes`, for all but the first of several processes and after it, what that one decided is found again.

    A fork that was made of this very run before goes on, however far the run itself has come since.

    Raises ChangedSettingsError, with a diff and the ways on, if a setting that decides the result was changed and not
    accepted; DirectoryInUseError if another process trains there; CommandError if the run has done more steps than are
    asked for, if there is nothing to fork from, or the new directory is taken; CheckpointError if the last checkpoint
    is damaged or what was trained has none. Nothing is written in these cases.
    """
    check_accepted(accepted, run)
    if fork is not None:
        if not _is_begun_fork(fork, directory):
            return _fork(run, directory, fork, command, recipe_source, writes)
        run, directory = replace(run, out=str(fork)), fork
    if directory.exists() and not directory.is_dir():
        raise CommandError(f"{directory} is a file; give another --out")
    with directory_lock(directory) if writes else contextlib.nullcontext():
        checkpoint = latest(directory)
        if checkpoint is None and forked_from(directory) is None:
            begun = (directory / RUN_FILE).is_file()
            refuse_lost(directory, read_run(directory).checkpoint.every if begun else None)
            start = Start(directory, run, None, accepted=tuple(accepted))
            if writes:
                write_run(run, directory)
        else:
            start = _resume(run, directory, accepted)
        if writes:
            _write(start, command, recipe_source)
    return start


def _resume(run: Run, directory: Path, accepted: Sequence[str]) -> Start:
    """What decides is the run that the checkpoint was trained with: run.json is a file that may have been edited."""
    checkpoint = latest(directory)
    if checkpoint is None or not (directory / RUN_FILE).is_file():
        what = "checkpoints, but no " + RUN_FILE if checkpoint else "a fork without a checkpoint"
        raise CommandError(
            f"{directory} holds {what}; restore what is missing, give another --out or, if it is an unfinished fork, "
            "that command with --fork again"
        )
    facts, noted = read_facts(checkpoint), read_run(directory)
    _refuse_fewer_steps(noted, run, directory, facts.step)
    found = changes(noted, run)
    # What was accepted at this very checkpoint stays so, as it was written down then.
    standing = [name for name in accepted_at(directory, facts.step) if not any(within(c.field, [name]) for c in found)]
    accepted = (*accepted, *standing)
    try:
        refuse(changes(facts.run, run), accepted)
    except ChangedSettingsError as error:
        edited = any(not (c.free or within(c.field, accepted)) for c in changes(facts.run, noted))
        raise ChangedSettingsError(f"{directory}: {error}" + (_mend(directory, checkpoint) if edited else "")) from None
    return Start(directory, run, facts.step, tuple(found), accepted)


def _mend(directory: Path, checkpoint: Path) -> str:
    return (
        f"\n{directory / RUN_FILE} is not what the checkpoint was trained with: to mend it, put the object under "
        f'"run" in {checkpoint / FACTS} in its place.'
    )


def anchored(run: Run, base: Path) -> Run:
    """The run with relative paths of files made absolute, so that it can go on from another working directory.

    Raises CommandError for one that is no UTF-8.
    """
    task = map_tasks(run.task, lambda task: _anchored_task(task, base))
    also = tuple(_anchored_task(task, base) for task in run.eval.also)
    start = None if run.start is None else _anchor(run.start, base)
    return replace(run, task=task, eval=replace(run.eval, also=also), start=start)


def _anchored_task(task: Task, base: Path) -> Task:
    source, vocabulary = _anchored_source(task.source, base), task.vocabulary
    if isinstance(vocabulary, SentencePiece):
        vocabulary = replace(vocabulary, path=_anchor(vocabulary.path, base))
    features = tuple(_anchored_feature(feature, base) for feature in task.features)
    return replace(task, source=source, vocabulary=vocabulary, features=features)


def _anchored_feature(feature: Feature, base: Path) -> Feature:
    if not isinstance(feature.vocabulary, SentencePiece):
        return feature
    return replace(feature, vocabulary=replace(feature.vocabulary, path=_anchor(feature.vocabulary.path, base)))


def _anchored_source(source: Source, base: Path) -> Source:
    match source:
        case TextFiles() | PairFiles() | RowFiles() | RecordFiles():
            files = tuple(_anchor(name, base) for name in source.files)
            heldout_files = tuple(_anchor(name, base) for name in source.heldout_files)
            return replace(source, files=files, heldout_files=heldout_files)
        case SeqioCaches():
            return replace(source, folders=tuple(_anchor(name, base) for name in source.folders))
        case TfdsFolder():
            return replace(source, folder=_anchor(source.folder, base))
        case HuggingFaceDataset(dataset=name):
            # a name of the Hub looks like a relative path
            is_path = name.endswith(".arrow") or name.startswith(("~", ".")) or (base / name).is_dir()
            return replace(source, dataset=_anchor(name, base)) if is_path else source
    return source


def _anchor(name: str, base: Path) -> str:
    kept = "://" in name or not name or os.path.isabs(name)
    return check_name(name if kept else os.path.normpath(base / os.path.expanduser(name)))


def check_name(path: str) -> str:
    """The path. Raises CommandError if it is no UTF-8: run.json, stores and model cards could not hold it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise CommandError(
            f"{path!r}: a name that is no UTF-8 cannot be written down with the run: rename it"
        ) from None
    return path


def _refuse_fewer_steps(old: Run, run: Run, directory: Path, step: int) -> None:
    if run.steps < step:
        own = f" (spanloom train {directory} goes on with the {old.steps:,} it has)" if old.steps >= step else ""
        raise CommandError(
            f"{directory} has done {step:,} steps, and {run.steps:,} are asked for; steps count from a run's "
            f"beginning. Give --steps {step} or more{own}, or train a shorter run in a new directory with --out NEW_DIR"
        )


def _fork(run: Run, old: Path, new: Path, command: Sequence[str], recipe_source: Path | None, writes: bool) -> Start:
    unfinished = _unfinished_fork(new, old)
    checkpoint = unfinished or latest(old)
    if checkpoint is None:
        raise CommandError(f"--fork {new}: {old} has no checkpoint to go on from; give --out {new} to begin there")
    facts, noted = read_facts(checkpoint), read_run(old)
    _refuse_fewer_steps(noted, run, old, facts.step)
    found = changes(facts.run, run)
    refuse([c for c in found if c.shapes])
    with directory_lock(new) if writes else contextlib.nullcontext():
        if latest(new) != unfinished:
            raise CommandError(
                f"--fork {new}: there is a run in it already; go on with it by --out {new}, or name another"
            )
        accepted = ("task", *(c.field for c in found if not c.free))
        start = Start(new, replace(run, out=str(new)), facts.step, tuple(changes(noted, run)), accepted)
        if not writes:
            return start
        if unfinished:
            _write(start, command, recipe_source, forked_from=str(forked_from(new)))
            return start
        refuse_lost(new)
        (new / RUN_FILE).unlink(missing_ok=True)  # of a run that never trained
        # The copy comes last: what has one knows whose fork it is.
        _write(start, command, recipe_source, forked_from=str(checkpoint.resolve()))
        copy_checkpoint(checkpoint, new)
    return start


def _is_begun_fork(new: Path, old: Path) -> bool:
    """Whether the run in `new` began as a fork of the one in `old`, and was begun indeed."""
    return (new / RUN_FILE).is_file() and latest(new) is not None and _is_of(forked_from(new), old)


def _unfinished_fork(new: Path, old: Path) -> Path | None:
    """The copied checkpoint in `new`, where a fork of `old` ended before its loop began."""
    there, origin = latest(new), forked_from(new)
    if there is None or (new / RUN_FILE).exists() or origin is None or not _is_of(origin, old):
        return None
    return there if there.name == origin.name else None


def _is_of(checkpoint: Path | None, directory: Path) -> bool:
    return checkpoint is not None and checkpoint.parent == (directory / CHECKPOINTS).resolve()


def _write(start: Start, command: Sequence[str], recipe_source: Path | None, **more: str) -> None:
    if recipe_source is not None and recipe_source.resolve() != (start.directory / RECIPE_FILE).resolve():
        source = recipe_source.read_bytes()
        write_file(start.directory / RECIPE_FILE, lambda file: file.write(source))
    changed = [str(change) for change in start.changed]
    add_command(start.directory, command, step=start.step, changed=changed, accepted=start.accepted, **more)
