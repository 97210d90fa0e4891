"""What a user sees once the last step is done: how good the model is, what it says, where it lies, what to try next."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spanloom.settings.run import Run
from spanloom.settings.task import SpanCorruption
from spanloom.settings.vocabulary import Bytes
from spanloom.training.checkpoint_paths import latest

if TYPE_CHECKING:
    from spanloom.conversion.trained_model import TrainedModel
    from spanloom.pipeline.data import Data

EXPORT = "huggingface"
"""Folder of a run directory that holds its last checkpoint as Hugging Face loads it."""


def close_run(run: Run, directory: Path) -> None:
    """Show results of a finished run, write them to metrics.jsonl, export it, and name the next commands."""
    checkpoint = latest(directory)
    if checkpoint is None:
        return
    from spanloom.cli.convert import read_source
    from spanloom.training.lock import directory_lock

    with directory_lock(directory):
        source = read_source(checkpoint)
        if run.after.baselines or run.after.fills:
            _results(run, directory, source, int(checkpoint.name))
        if run.after.export:
            _export(directory / EXPORT, checkpoint, source)
    _next_commands(run, directory, int(checkpoint.name))


# Results.


def _results(run: Run, directory: Path, source: "TrainedModel", step: int) -> None:
    from spanloom.pipeline.data import open_data
    from spanloom.training.loggers import METRICS_FILE, MetricsFile
    from spanloom.vocabularies.build import build

    data = open_data(run, directory, vocabulary=build(source.vocabulary))
    if data.heldout is None:
        print("\nnothing was held out of training, so there is nothing to measure the model on")
        return
    metrics = MetricsFile(directory / METRICS_FILE, step)
    try:
        if isinstance(run.task.objective, SpanCorruption):
            if run.after.baselines:
                losses = _heldout(run, directory / METRICS_FILE, data, source, step)
                metrics.write("baselines", step, {"task": run.task.name, **_beside_baselines(run, data, losses)})
            _show_fills(run, data, source)
        else:
            metrics.write("exact_match", step, {"task": run.task.name, **_exact_match(run, data, source)})
    finally:
        metrics.close()


def _batches(run: Run, data: "Data") -> Any:
    """The held-out batches that the loop evaluates on."""
    assert data.heldout is not None
    return data.heldout.eval_batches(run.eval.batch_size or run.batch_size, run.eval.max_batches)


def _heldout(run: Run, metrics: Path, data: "Data", source: "TrainedModel", step: int) -> dict[str, float]:
    """Held-out losses at this step: those the loop wrote down, measured anew if they are of other batches."""
    from spanloom.evaluation.heldout import heldout_metrics, make_heldout_step

    tokens = float(sum(batch["decoder_loss_weights"].sum() for batch in _batches(run, data)))
    for line in metrics.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if (event["kind"], event["step"], event.get("task")) == ("eval", step, run.task.name):
            losses: dict[str, float] = event
            if losses["heldout_tokens"] == tokens:
                return losses
    return heldout_metrics(make_heldout_step(source.model, data.vocabulary), source.params, _batches(run, data))


def _beside_baselines(run: Run, data: "Data", losses: dict[str, float]) -> dict[str, float]:
    """Print the model's losses beside those of the baselines; these, for metrics.jsonl."""
    from spanloom.evaluation.baselines import baseline_losses

    baselines = baseline_losses(data.train.store.blocks(), _batches(run, data), data.vocabulary)
    rows = {"this model": (losses["heldout_loss"], losses["heldout_text_loss"])}
    for name in ("bigram", "unigram"):
        rows[f"{name} model"] = (baselines[name].loss, baselines[name].text_loss)
    unit = "byte" if isinstance(run.task.vocabulary, Bytes) else "token"
    print(
        f"\nheld-out loss in nats, on the same {losses['heldout_tokens']:,.0f} target tokens (sentinels and ends of "
        "sequence cost the baselines nothing):"
    )
    print(f"{'':<16}{'a target token':>16}{'a text ' + unit + ' alone':>20}")
    for name, (loss, text_loss) in rows.items():
        print(f"  {name:<14}{loss:>16.4f}{text_loss:>20.4f}")
    return {
        f"{name}_{kind}": getattr(baselines[name], kind)
        for name in ("unigram", "bigram")
        for kind in ("loss", "text_loss")
    }


def _show_fills(run: Run, data: "Data", source: "TrainedModel") -> None:
    if not run.after.fills or data.heldout is None:
        return
    from spanloom.evaluation.fill import LEGEND, coloured, fill_examples, plain

    examples = data.heldout.text_examples(run.after.fills)
    filled = fill_examples(source.params, source.model, data.vocabulary, examples, data.lengths["decoder"])
    print(f"\nheld-out text, its gaps filled in by the model: {LEGEND}")
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for number, pieces in enumerate(filled, 1):
            console.print(f"\n{number}. ", coloured(pieces), sep="")
        return
    for number, pieces in enumerate(filled, 1):
        print(f"\n{number}. {plain(pieces)}")


def _exact_match(run: Run, data: "Data", source: "TrainedModel") -> dict[str, float]:
    """Print the share of held-out examples that are right, with some of them; the share, for metrics.jsonl."""
    from spanloom.evaluation.exact_match import exact_match

    share, made = exact_match(source.params, source.model, data.vocabulary, _batches(run, data))
    right = sum(prediction.correct for prediction in made)
    print(f"\nexact match on {len(made):,} held-out examples: {share:.1%} ({right:,} right)")
    spread = made[:: max(len(made) // max(run.after.fills, 1), 1)][: run.after.fills]
    for prediction in spread:
        verdict = "right" if prediction.correct else f"wrong, not {prediction.target!r}"
        print(f"  {prediction.inputs!r} -> {prediction.prediction!r} ({verdict})")
    return {"exact_match": share, "examples": float(len(made))}


# The export, and what comes next.


def _export(folder: Path, checkpoint: Path, source: "TrainedModel") -> None:
    """Export a checkpoint, unless it was exported before: the folder may have been edited since."""
    if _is_export_of(folder, checkpoint):
        print(f"\n{folder} holds the model as Hugging Face loads it")
        return
    from spanloom.conversion.convert import convert_to_hf

    report = convert_to_hf(source, folder, overwrite=True)
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
    print(f"  spanloom train {place} --steps {2 * max(run.steps, step, 1)}")
    if isinstance(run.task.objective, SpanCorruption):
        print(f"  spanloom finetune --data pairs.tsv --start {place} --out runs/finetuned")
    else:
        print(f"  spanloom convert {place} {shlex.quote(f'{directory}-best')} --to hf --which best")
