"""T5 1.1 base (250 million parameters) from scratch on your own text and SentencePiece model.

    spanloom train t5_1_1_base --text 'corpus/*.txt.gz' --vocabulary my.model --out runs/t5

Raffel et al. 2020 with 1.1's gated GELU and no dropout: 2^19 steps of 128 sequences of 512 tokens, spans of 3 tokens.
Cost, counted and not measured: 5.5e13 FLOPs a step, 2.9e19 in all. Nobody has run this recipe to its end with Spanloom,
so that no loss stands here.
"""

from dataclasses import replace

from spanloom.recipes import pretrain
from spanloom.settings.run import Checkpoints, Evaluation, Run


def recipe(text: tuple[str, ...] = (), vocabulary: str = "sentencepiece.model", field: str = "text") -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz. Must be given.
      vocabulary: A SentencePiece model file.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
    """
    return replace(
        pretrain.recipe(text=text, vocabulary=vocabulary, field=field, model="t5_1_1_base"),
        name="t5_1_1_base",
        steps=2**19,
        checkpoint=Checkpoints(every=5000),
        eval=Evaluation(every=5000),
    )
