"""What a user sees once the last step is done: how good the model is, what it says, where it lies, what to try next."""

import contextlib
import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.settings.objectives import Supervised, writes_masks
from spanloom.settings.run import Run
from spanloom.training.checkpoint_paths import CheckpointError, latest, open_checkpoint
from spanloom.training.integrity import fingerprint

if TYPE_CHECKING:
    from spanloom.conversion.trained_model import TrainedModel
    from spanloom.evaluation.results import Results

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""


def close_run(run: Run, directory: Path) -> None:
    """Show results of a finished run, export it, and name the next commands.

    What was measured before is shown again, and the weights are not read, see `spanloom.training.finished`.
    """
    checkpoint = latest(directory)
    if checkpoint is None:
        return
    from spanloom.training import finished, read_model
    from spanloom.training.lock import directory_lock

    model = functools.cache(lambda: read_model.read_model(checkpoint))
    hint = ""
    with directory_lock(directory):
        if run.after.baselines or run.after.fills:
            results = finished.results_of(run, directory, checkpoint, model)
            _show(results)
            hint = results.hint
        if run.after.export:
            _export(directory, checkpoint, model)
    _next_commands(run, directory, int(checkpoint.name), hint or "... <mask> ...")


def _show(results: "Results") -> None:
    from spanloom.evaluation.fill import LEGEND, coloured, plain

    if results.text:
        print(f"\n{results.text}")
    if results.fills:
        print(f"\nheld-out text, its gaps filled in by the model: {LEGEND}")
    if results.fills and sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for number, pieces in enumerate(results.fills, 1):
            console.print(f"\n{number}. ", coloured(pieces), sep="")
        return
    for number, pieces in enumerate(results.fills, 1):
        print(f"\n{number}. {plain(pieces)}")


def _export(directory: Path, checkpoint: Path, model: "Callable[[], TrainedModel]") -> None:
    """Export a checkpoint, unless it was exported before: the folder may have been edited since."""
    folder = directory / EXPORT
    if _is_export_of(folder, checkpoint):
        print(f"\n{folder} holds the model as Hugging Face loads it")
        return
    from spanloom.conversion.convert import convert_to_hf
    from spanloom.conversion.errors import ConversionError
    from spanloom.conversion.staging import check_destination

    try:
        check_destination(folder)
    except ConversionError as error:
        print(f"\nnot exported: {error} (spanloom convert {shlex.quote(str(directory))} FOLDER --to hf)")
        return
    report = convert_to_hf(model(), folder, overwrite=True)  # the run's own, also where the directory was moved
    print(f"\n{report.describe()}")


def _is_export_of(folder: Path, checkpoint: Path) -> bool:
    """Whether the folder holds this very checkpoint, wherever its run stood then."""
    from spanloom.conversion.huggingface import read_lineage

    with contextlib.suppress(OSError, ValueError):
        return read_lineage(folder).checkpoint == fingerprint(checkpoint)
    return False


def _next_commands(run: Run, directory: Path, step: int, hint: str) -> None:
    """Commands that work on this very model as they stand (but for the pairs, which the user has)."""
    place = shlex.quote(str(directory))
    pretrained = not isinstance(run.task.objective, Supervised)
    print("\nwhat to try next:")
    if writes_masks(run.task.objective):
        print(f"  spanloom fill {place} --text {shlex.quote(hint)}")
    longer = replace(run, steps=2 * max(run.steps, step, 1))
    with contextlib.suppress(ValueError):  # a schedule that has come to its end takes no more steps
        longer.resolve()
        print(f"  spanloom train {place} --steps {longer.steps}")
    if pretrained:
        print(f"  spanloom finetune --data pairs.tsv --start {place} --out runs/finetuned")
    elif (best := _best(directory)) is not None and best != step:
        print(f"  spanloom convert {place} {shlex.quote(f'{directory}-best')} --to hf --which best")


def _best(directory: Path) -> int | None:
    """The step of the run's best checkpoint, if any was measured."""
    try:
        return int(open_checkpoint(directory, "best").name)
    except CheckpointError:
        return None
