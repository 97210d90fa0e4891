"""What a user sees once the last step is done: how good the model is, what it says, where it lies, what to try next."""

import json
from pathlib import Path

from spanloom.settings.run import Run
from spanloom.settings.task import SpanCorruption
from spanloom.training.checkpoint_paths import latest

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""


MARK_FILE = "spanloom.json"
"""What an export says about itself."""


def close_run(run: Run, directory: Path) -> None:
    """Show results of a finished run, export it, and name the next commands."""
    if run.after.export:
        _export(directory)
    _next_commands(run, directory)


def _export(directory: Path) -> None:
    """Export the last checkpoint, unless it was exported before: the folder may have been edited since."""
    folder, checkpoint = directory / EXPORT, latest(directory)
    if checkpoint is None:
        return
    if _is_export_of(folder, checkpoint):
        print(f"\n{folder} holds the model as Hugging Face loads it")
        return
    from spanloom.cli.convert import read_source
    from spanloom.conversion.convert import convert_to_hf

    report = convert_to_hf(read_source(checkpoint), folder, overwrite=True)
    print(f"\n{report.describe()}")


def _is_export_of(folder: Path, checkpoint: Path) -> bool:
    mark = folder / MARK_FILE
    try:
        step = json.loads(mark.read_text(encoding="utf-8")).get("step")
        return step == int(checkpoint.name) and mark.stat().st_mtime >= checkpoint.stat().st_mtime
    except (OSError, ValueError, AttributeError):
        return False


def _next_commands(run: Run, directory: Path) -> None:
    print("\nwhat to try next:")
    if isinstance(run.task.objective, SpanCorruption):
        print(f'  spanloom fill {directory} --text "This function <mask> a list."')
    print(f"  spanloom train {directory} --steps {2 * max(run.steps, 1)}")
    if isinstance(run.task.objective, SpanCorruption):
        print(f"  spanloom finetune --data pairs.tsv --start {directory} --out runs/finetuned")
    else:
        print(f"  spanloom convert {directory} {directory / 'best'} --to hf --which best")
