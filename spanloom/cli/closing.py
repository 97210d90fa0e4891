"""What a user sees once the last step is done: how good the model is, what it says, where it lies, what to try next."""

import contextlib
import functools
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanloom import __version__
from spanloom.settings.run import Run
from spanloom.settings.serialize import to_json
from spanloom.settings.task import SpanCorruption
from spanloom.training.checkpoint_paths import latest

if TYPE_CHECKING:
    from spanloom.conversion.trained_model import TrainedModel
    from spanloom.evaluation.results import Results
    from spanloom.pipeline.data import Data

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""
RESULTS_FILE = "results.json"
"""File of a run directory that keeps what was measured of its last checkpoint."""


def close_run(run: Run, directory: Path) -> None:
    """Show results of a finished run, write them to metrics.jsonl, export it, and name the next commands.

    What was measured before is shown from results.json, and the weights are not read, while checkpoint, data and
    settings are the same.
    """
    checkpoint = latest(directory)
    if checkpoint is None:
        return
    from spanloom.cli.convert import read_source
    from spanloom.training.lock import directory_lock

    model = functools.cache(lambda: read_source(checkpoint))
    with directory_lock(directory):
        if run.after.baselines or run.after.fills:
            _results(run, directory, checkpoint, model)
        if run.after.export:
            _export(directory / EXPORT, checkpoint, model)
    _next_commands(run, directory, int(checkpoint.name))


# Results.


def _results(run: Run, directory: Path, checkpoint: Path, model: "Callable[[], TrainedModel]") -> None:
    from spanloom.evaluation.measure import measure
    from spanloom.evaluation.results import read_results, write_results
    from spanloom.pipeline.data import open_data
    from spanloom.training.checkpoints import read_facts, vocabulary_of
    from spanloom.training.loggers import METRICS_FILE, MetricsFile

    facts = read_facts(checkpoint)
    data = open_data(run, directory, vocabulary=vocabulary_of(checkpoint, facts), warn=lambda text: None)  # said before
    if facts.content and data.content != facts.content:
        print("\nthe text has changed since the run learnt from it, so nothing is measured on it")
        return
    if data.heldout is None:
        print("\nnothing was held out of training, so there is nothing to measure the model on")
        return
    key = _key(run, checkpoint, data)
    results = read_results(directory / RESULTS_FILE, key)
    metrics = MetricsFile(directory / METRICS_FILE, int(checkpoint.name))
    with contextlib.closing(metrics):
        if results is None:
            logged = _logged(directory / METRICS_FILE, run.task.name, int(checkpoint.name))
            results = measure(run, data, model().model, model().params, logged)
            write_results(directory / RESULTS_FILE, key, results)
        if results.kind:
            metrics.write(results.kind, int(checkpoint.name), {"task": run.task.name, **results.values})
    _show(results)


def _key(run: Run, checkpoint: Path, data: "Data") -> str:
    """What decides the results: the very bytes of the checkpoint (its manifest has their sums), the data, settings."""
    from spanloom.evaluation.results import key_of
    from spanloom.training.integrity import MANIFEST

    return key_of(
        step=int(checkpoint.name),
        checkpoint=(checkpoint / MANIFEST).read_text(encoding="utf-8"),
        data=data.content,
        lengths=data.lengths,
        settings=[to_json(part) for part in (run.task, run.model, run.eval, run.batch_size, run.after)],
        version=__version__,
    )


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


def _logged(metrics: Path, task: str, step: int) -> dict[str, float] | None:
    """The held-out losses that the loop wrote down at this step; None if there are none that can be read."""
    for line in metrics.read_bytes().splitlines():
        try:
            event: dict[str, Any] = json.loads(line)
            if (event["kind"], event["step"], event["task"]) == ("eval", step, task):
                return {name: float(event[name]) for name in ("heldout_loss", "heldout_text_loss", "heldout_tokens")}
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # another kind of line, or a damaged one
    return None


# The export, and what comes next.


def _export(folder: Path, checkpoint: Path, model: "Callable[[], TrainedModel]") -> None:
    """Export a checkpoint, unless it was exported before: the folder may have been edited since."""
    if _is_export_of(folder, checkpoint):
        print(f"\n{folder} holds the model as Hugging Face loads it")
        return
    from spanloom.conversion.convert import convert_to_hf

    report = convert_to_hf(model(), folder, overwrite=True)
    print(f"\n{report.describe()}")


def _is_export_of(folder: Path, checkpoint: Path) -> bool:
    from spanloom.conversion.hf_vocabulary import MARK_NAME

    mark = folder / MARK_NAME
    try:
        step = json.loads(mark.read_text(encoding="utf-8")).get("step")
        return step == int(checkpoint.name) and mark.stat().st_mtime >= checkpoint.stat().st_mtime
    except (OSError, ValueError, AttributeError):
        return False


def _next_commands(run: Run, directory: Path, step: int) -> None:
    place = shlex.quote(str(directory))
    print("\nwhat to try next:")
    if isinstance(run.task.objective, SpanCorruption):
        print(f'  spanloom fill {place} --text "This function <mask> a list."')
    longer = replace(run, steps=2 * max(run.steps, step, 1))
    with contextlib.suppress(ValueError):  # a schedule that has come to its end takes no more steps
        longer.resolve()
        print(f"  spanloom train {place} --steps {longer.steps}")
    if isinstance(run.task.objective, SpanCorruption):
        print(f"  spanloom finetune --data pairs.tsv --start {place} --out runs/finetuned")
    else:
        print(f"  spanloom convert {place} {shlex.quote(f'{directory}-best')} --to hf --which best")
