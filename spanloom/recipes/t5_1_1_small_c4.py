"""T5 1.1 small (77 million parameters) on C4: the run that T5X's documentation begins with.

    spanloom train t5_1_1_small_c4 --text 'c4/en/c4-train.*.json.gz' --heldout 'c4/en/c4-validation.*.json.gz' \\
        --vocabulary spiece.model --out runs/c4

10,000 steps of 256 sequences of 512 tokens, 15 % masked in spans of 3; Adafactor at 1 / sqrt(max(step, 10,000)), no
dropout, z-loss 1e-4, bfloat16, held-out loss every 1,000 steps over 20 batches. Files of C4's shape: a JSON object with
a "text" in each line. The same seed gives the same run, which T5X's has to be asked for. Hardware: any; compiled for a
v4-8, a step takes 6.0 GiB of the 30.75 of a chip. Cost, counted and not measured: 2.7e13 FLOPs a step, 2.7e17 in all,
at least 0.2 hours there. T5X's page states no loss, and nobody has run these defaults to their end with Spanloom.
"""

from dataclasses import replace

from spanloom.model.sizes import named
from spanloom.recipes import pretrain
from spanloom.settings.run import Checkpoints, Evaluation, Run


def recipe(
    text: tuple[str, ...] = (),
    heldout: tuple[str, ...] = (),
    vocabulary: str = "spiece.model",
    field: str = "text",
) -> Run:
    """The run.

    Args:
      text: Files or globs: .jsonl, .json, .txt, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz. Must be given.
      heldout: Files or globs of the held-out part; none: a share of the documents is kept out.
      vocabulary: T5's SentencePiece model file (32,000 pieces, 100 sentinels appended).
      field: Field of a row that holds the text.
    """
    return replace(
        pretrain.recipe(text=text, heldout=heldout, vocabulary=vocabulary, field=field, model="t5_1_1_small"),
        name="t5_1_1_small_c4",
        model=named("t5_1_1_small", dtype="bfloat16"),
        batch_size=256,
        steps=10_000,
        checkpoint=Checkpoints(every=1000),
        eval=Evaluation(every=1000, max_batches=20),
    )
