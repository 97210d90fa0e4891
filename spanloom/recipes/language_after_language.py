"""One language after another, each stage going on from the one before it, as hmByT5 was trained.

    spanloom train language_after_language --text en='en/*.txt' de=de.jsonl.gz --steps 200000 --out runs/hm
    spanloom train language_after_language --text en=en.txt de=de.txt --model byt5_nano --batch-size 16 --steps 300

Span corruption as `pretrain` has it, with Adafactor at 1 / sqrt(max(step, 10,000)), which goes on over all languages.
Every evaluation measures the held-out text of all languages; the last page is a table of what each stage forgot.
The order is that of --text. Each language is a run directory of its own, runs/hm/1-en, runs/hm/2-de, ..., that any
command takes. A step costs what one of `pretrain` does, and nobody has run these defaults to their end.
"""

from dataclasses import replace
from typing import Literal

from spanloom.recipes import pretrain
from spanloom.recipes._files import by_name
from spanloom.settings.follow import Follow
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, Task

_REWARM_STEPS = 1000


def recipe(
    text: tuple[str, ...] = (),
    steps: int = 100_000,
    policy: Literal["continue", "reset", "rewarm"] = "continue",
    heldout_share: float = 0.01,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    encoding: str = "utf-8",
    errors: Errors = "strict",
    vocabulary: str | None = None,
    model: str | None = None,
    start: str | None = None,
    inputs_length: int | None = None,
    noise_density: float = 0.15,
    mean_span_length: float | None = None,
) -> list[Run]:
    """The runs, one a language.

    Args:
      text: NAME=FILES of each language, in their order: a file or glob (.txt, .jsonl, .csv, .tsv, .parquet; compressed
        ones too); a name may come again with more files; without NAME= it is that of the file. Must be given.
      steps: Steps of each language; of one alone: --stage.2.steps, or --stage.de.steps.
      policy: What a language takes over beside the weights. continue: the optimizer's state, and the schedule goes on;
        reset: neither; rewarm: the optimizer's state, and the schedule begins anew with a rise over 1,000 steps
        (--follow.rewarm-steps).
      heldout_share: Share of the documents of each language that is kept out of training.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      vocabulary: `bytes`, or a SentencePiece model file; unset: that of --start, or bytes for byt5 models.
      model: A published size, see pretrain; unset: that of --start, or byt5_small.
      start: Checkpoint, run directory or Hugging Face folder to start the first language from; unset: random weights.
      inputs_length: Encoder length in tokens; unset: 1024 for bytes, 512 for SentencePiece.
      noise_density: Share of the tokens that is masked.
      mean_span_length: Mean length of a masked span in tokens; unset: 20 for bytes, 3 for SentencePiece.
    """
    if not text:
        raise SettingsError("--text is empty: name the languages in order, such as --text en='en/*.txt' de=de.jsonl")
    runs: list[Run] = []
    for name, files in by_name("--text", text).items():
        base = pretrain.recipe(
            text=files,
            heldout_share=heldout_share,
            field=field,
            unit=unit,
            encoding=encoding,
            errors=errors,
            vocabulary=vocabulary,
            model=model,
            start=start,
            inputs_length=inputs_length,
            noise_density=noise_density,
            mean_span_length=mean_span_length,
        )
        assert isinstance(base.task, Task)
        task = replace(base.task, name=name)
        first = not runs
        follow = Follow() if first else _follow(policy)
        runs.append(replace(base, name=name, task=task, steps=steps, start=start if first else None, follow=follow))
    return runs


def _follow(policy: str) -> Follow:
    if policy == "reset":
        return Follow()
    if policy == "rewarm":
        return Follow(optimizer="continue", schedule="restart", rewarm_steps=_REWARM_STEPS)
    return Follow(optimizer="continue", schedule="continue")


def example() -> tuple[tuple[Run, ...], dict[str, str]]:
    """The runs as help shows them before --text is named."""
    return tuple(recipe(("en=en.txt", "de=de.txt"))), {}
