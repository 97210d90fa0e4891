"""What a user sees once the last step is done: how good the model is, what it says, where it lies, what to try next."""

from pathlib import Path

from spanloom.settings.run import Run
from spanloom.settings.task import SpanCorruption

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""


def close_run(run: Run, directory: Path) -> None:
    """Show results of a finished run, export it, and name the next commands."""
    if run.after.export:
        _export(directory)
    _next_commands(run, directory)


def _export(directory: Path) -> None:
    from spanloom.cli.convert import read_source
    from spanloom.conversion.convert import convert_to_hf

    report = convert_to_hf(read_source(directory), directory / EXPORT, overwrite=True)
    print(f"\n{report.describe()}")


def _next_commands(run: Run, directory: Path) -> None:
    print("\nwhat to try next:")
    if isinstance(run.task.objective, SpanCorruption):
        print(f'  spanloom fill {directory} --text "This function <mask> a list."')
    print(f"  spanloom train {directory} --steps {2 * max(run.steps, 1)}")
    if isinstance(run.task.objective, SpanCorruption):
        print(f"  spanloom finetune --data pairs.tsv --start {directory} --out runs/finetuned")
    else:
        print(f"  spanloom convert {directory} {directory / 'best'} --to hf --which best")
