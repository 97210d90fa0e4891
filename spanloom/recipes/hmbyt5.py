"""ByT5 small, continued on historical text, one language after another: hmByT5, redone.

    spanloom train hmbyt5 --start byt5_small/checkpoint_1000000 --text en='en/*.txt' de='de/*.txt' fr='fr/*.txt' \\
        fi='fi/*.txt' sv='sv/*.txt' nl='nl/*.txt' --out runs/hmbyt5
    spanloom train hmbyt5 --start runs/small --text en=en.txt de=de.txt --steps 200 --batch-size 16 --out runs/twin

The values of stefan-it/hmByT5's Mesh TensorFlow route: 1,024 sequences of 1,024 bytes a step, 15 % masked in spans of
20, no dropout, Adafactor at 1 / sqrt(step), which goes on at step 1,000,000 with the checkpoint's own state, 100,000
steps a language (its logbook has 200,000: --steps). Sentinels are those that the start's weights were trained with,
Google's 258 downwards. A Hugging Face folder has no optimizer: it begins anew there, at the rate of step 1,000,000.
Every evaluation measures all languages, and the last page is a table of what each stage forgot.

Hardware: a v3-32, as there (`spanloom plan hmbyt5 ... --on v3-32`), compiled for which a step takes 11.4 GiB of the
15.5 of a core. Cost, counted and not measured: 1.5e15 FLOPs a step, 1.5e20 and at least 24 hours a language. The
original reports no losses but tags of entities (micro-F1 on AjMC: English 85.7, German 87.3, French 84.4, after its
other route); nobody has run these defaults to their end with Spanloom.
"""

from dataclasses import replace
from typing import Literal

from spanloom.recipes import language_after_language
from spanloom.recipes._start import going_on, needed
from spanloom.settings.follow import Follow
from spanloom.settings.optimizer import Rsqrt
from spanloom.settings.run import Checkpoints, Run
from spanloom.settings.task import Errors


def recipe(
    text: tuple[str, ...] = (),
    start: str | None = None,
    steps: int = 100_000,
    policy: Literal["continue", "reset", "rewarm"] = "continue",
    heldout_share: float = 0.001,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    encoding: str = "utf-8",
    errors: Errors = "strict",
) -> list[Run]:
    """The runs, one a language.

    Args:
      text: NAME=FILES of each language, in their order: a file or glob (.txt, .jsonl, .csv, .tsv, .parquet; compressed
        ones too); a name may come again with more files; without NAME= it is that of the file. Must be given.
      start: A released ByT5, as T5X, Mesh TensorFlow or Hugging Face have it, or a run of bytes. Must be given.
      steps: Steps of each language; of one alone: --stage.2.steps, or --stage.de.steps.
      policy: What a language takes over beside the weights. continue: the optimizer's state, and the schedule goes on;
        reset: neither; rewarm: the optimizer's state, and the schedule begins anew with a rise over 1,000 steps.
      heldout_share: Share of the documents of each language that is kept out of training.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
    """
    if start is None:
        raise needed("hmbyt5")
    runs = language_after_language.recipe(
        text=text,
        steps=steps,
        policy=policy,
        heldout_share=heldout_share,
        field=field,
        unit=unit,
        encoding=encoding,
        errors=errors,
        start=start,
    )
    return _with_values(runs, *going_on(start))


def example() -> tuple[tuple[Run, ...], dict[str, str]]:
    """The runs as help shows them before --text and --start are named."""
    runs, told = language_after_language.example()
    return tuple(_with_values(list(runs), Follow(optimizer="continue", schedule="continue"), Rsqrt())), told


def _with_values(runs: list[Run], follow: Follow, schedule: Rsqrt) -> list[Run]:
    return [
        replace(
            run,
            model=replace(run.model, dtype="bfloat16", remat="cheap"),
            schedule=schedule,
            follow=run.follow if number else follow,
            batch_size=1024,
            checkpoint=Checkpoints(every=5000, keep_every=25_000),
        )
        for number, run in enumerate(runs)
    ]
