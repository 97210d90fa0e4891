"""ByT5 small (300 million parameters) from scratch on your own text, with the paper's settings.

    spanloom train byt5_small --text 'corpus/*.jsonl.gz' --out runs/byt5

Xue et al. 2022: a million steps of 1,024 sequences of 1,024 bytes, 15 % masked in spans of 20 bytes. Cost, counted and
not measured: 1.6e15 FLOPs a step, 1.6e21 in all. Nobody has run this recipe to its end with Spanloom, so that no loss
stands here. On one device take a smaller --batch_size and fewer --steps.
"""

from dataclasses import replace

from spanloom.recipes import pretrain
from spanloom.settings.run import Checkpoints, Evaluation, Run


def recipe(text: tuple[str, ...] = (), field: str = "text") -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz. Must be given.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
    """
    return replace(
        pretrain.recipe(text=text, field=field, model="byt5_small"),
        name="byt5_small",
        batch_size=1024,
        steps=1_000_000,
        checkpoint=Checkpoints(every=5000),
        eval=Evaluation(every=5000),
    )
