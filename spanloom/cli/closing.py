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
from spanloom.training.chosen import chosen
from spanloom.training.integrity import fingerprint

if TYPE_CHECKING:
    from spanloom.conversion.trained_model import TrainedModel
    from spanloom.evaluation.results import Results

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""


def close_run(run: Run, directory: Path, further: str | None = None) -> None:
    """Show results of a finished run, export it, and name the next commands.

    They are those of its last checkpoint, or of the best where it was ended early. What was measured before is shown
    again, and the weights are not read, see `spanloom.training.finished`. `further`: the command that trains the run
    on, up to the number of steps; empty: another run follows, so no command is named.
    """
    if latest(directory) is None:
        return
    checkpoint = chosen(directory, stopping=run.stopping)
    if checkpoint != latest(directory):
        print(f"\nresults of the best checkpoint, {checkpoint}")
    from spanloom.training import copied, finished, read_model
    from spanloom.training.lock import directory_lock

    model = functools.cache(lambda: read_model.read_model(checkpoint))
    hint = ""
    with directory_lock(directory):
        if run.after.baselines or run.after.fills:
            for task, results in finished.results_of(run, directory, checkpoint, model).items():
                _show(results, heading=task if len(run.tasks) > 1 else "")
                hint = hint or results.hint
        if run.after.export:
            _export(directory, checkpoint, model)
        copied.copy_closed(run, directory, lambda said: print(f"\nwarning: {said}"))
    if further is None:
        further = f"spanloom train {shlex.quote(str(directory))} --steps"
    if further:
        _next_commands(run, directory, int(checkpoint.name), hint or "... <mask> ...", further)


def _show(results: "Results", heading: str) -> None:
    from spanloom.evaluation.fill import LEGEND, coloured, plain

    if heading:
        print(f"\n== {heading}")
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


def _next_commands(run: Run, directory: Path, step: int, hint: str, further: str) -> None:
    """Commands that work on this very model as they stand (but for the pairs, which the user has)."""
    place = shlex.quote(str(directory))
    pretrained = any(not isinstance(task.objective, Supervised) for task in run.tasks)
    print("\nwhat to try next:")
    if any(writes_masks(task.objective) for task in run.tasks):
        print(f"  spanloom fill {place} --text {shlex.quote(hint)}")
    if not pretrained:
        print(f"  spanloom eval {place}  # all that is held out, with every prediction in {place}/eval")
        print(f"  spanloom generate {place} --input lines.txt --output answers.jsonl  # with lines of your own")
    longer = replace(run, steps=2 * max(run.steps, step, 1))
    with contextlib.suppress(ValueError):  # a schedule that has come to its end takes no more steps
        longer.resolve()
        print(f"  {further} {longer.steps}")
    if pretrained:
        print(f"  spanloom finetune --data pairs.tsv --start {place} --out runs/finetuned  # with pairs of your own")
    elif (best := _best(directory)) is not None and best != step:
        print(f"  spanloom convert {place} {shlex.quote(f'{directory}-best')} --to hf --which best")


def _best(directory: Path) -> int | None:
    """The step of the run's best checkpoint, if any was measured."""
    try:
        return int(open_checkpoint(directory, "best").name)
    except CheckpointError:
        return None
