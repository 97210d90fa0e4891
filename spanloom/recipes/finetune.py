"""Inputs to targets, from a start checkpoint or a Hugging Face folder; `spanloom finetune` is this recipe.

    spanloom finetune --data pairs.tsv --start runs/a --out runs/b
    spanloom finetune --data 'pairs/*.jsonl' --inputs question --targets answer --start byt5-small/ --out runs/c
    spanloom finetune --data summaries.tsv --start runs/a --out runs/d --metrics rouge chrf

Model and vocabulary are those of the start checkpoint. T5's settings for fine-tuning: Adafactor at a constant 0.001,
dropout 0.1; models narrower than any published one barely move at that rate and get 0.01. Held-out loss is printed, and
exact match or the metrics that are named. Cost depends on the model; on small data a few hundred steps do.
"""

from dataclasses import replace
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes._fine_tuning import fine_tuning_run, told_by_start
from spanloom.recipes._start import model_and_vocabulary
from spanloom.settings.function import as_functions
from spanloom.settings.measures import METRICS
from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import Checkpoints, Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, PairFiles, Task
from spanloom.settings.vocabulary import Bytes


def recipe(
    data: tuple[str, ...] = (),
    start: str | None = None,
    heldout: str | None = None,
    inputs: str = "inputs",
    targets: str = "targets",
    header: Literal["auto", "yes", "no"] = "auto",
    format: Literal["auto", "jsonl", "csv", "tsv", "parquet"] = "auto",
    encoding: str = "utf-8",
    errors: Errors = "strict",
    inputs_length: int | None = None,
    targets_length: int | None = None,
    too_long: Literal["error", "trim"] = "error",
    metrics: tuple[str, ...] = (),
) -> Run:
    """The run.

    Args:
      data: Files or globs of pairs: .tsv, .csv, .jsonl, .parquet; compressed ones too. Must be given.
      start: Checkpoint, run directory or Hugging Face folder to start from. Must be given.
      heldout: Share of the pairs that is kept out (0.05), or a file or glob of held-out pairs; unset: 0.05.
      inputs: Column or field of the inputs, a template such as 'translate: {src}', or a column number from 0.
      targets: Column or field of the targets, a template, or a column number from 0.
      header: Whether tables have a header row; auto: yes if it names the columns asked for.
      format: Format of the files; auto goes by the name.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      inputs_length: Encoder length in tokens; unset: the longest input of the data.
      targets_length: Decoder length in tokens; unset: the longest target of the data.
      too_long: What to do with longer examples: stop and say how many there are, or trim.
      metrics: What to measure on held-out pairs, such as rouge, bleu or word_error_rate; none: exact match.
    """
    measures = as_functions(metrics, "--metrics", METRICS)
    if start is None:
        raise SettingsError(
            "fine-tuning needs --start: a run directory, one of its checkpoints/STEP or a Hugging Face folder "
            "(to train on pairs from random weights, write a recipe)"
        )
    model, vocabulary = model_and_vocabulary(start)
    share = _share(heldout)
    source = PairFiles(
        files=data,
        heldout_files=() if heldout is None or share is not None else (heldout,),
        inputs=inputs,
        targets=targets,
        header=header,
        format=format,
        encoding=encoding,
        errors=errors,
    )
    objective = Supervised(inputs_length=inputs_length, targets_length=targets_length, too_long=too_long)
    source = source if share is None else replace(source, heldout_share=share)
    task = Task(name="pairs", source=source, vocabulary=vocabulary, objective=objective, metrics=measures)
    return _run(task, model, start)


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --start is named, and the fields that only --start tells."""
    run = _run(Task("pairs", PairFiles(), Bytes(), Supervised()), named("byt5_small"), None)
    return run, told_by_start()


def _run(task: Task, model: Model, start: str | None) -> Run:
    return fine_tuning_run(
        "finetune",
        task,
        model,
        start,
        batch_size=64,
        steps=1000,
        checkpoint=Checkpoints(every=200),
        eval=Evaluation(every=200),
    )


def _share(heldout: str | None) -> float | None:
    """The held-out share, or None where files are named (or nothing is)."""
    try:
        return None if heldout is None else float(heldout)
    except ValueError:
        return None
