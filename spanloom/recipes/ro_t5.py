"""A language's own T5 1.1, from scratch with a vocabulary of its own, or mT5 continued: the Romanian T5, redone.

    spanloom vocab train --text 'ro/*.txt' --size 63900 --out ro  # and 100 sentinels
    spanloom train ro_t5 --text 'ro/*.jsonl.gz' --vocabulary ro/spiece.model --out runs/ro_base
    spanloom train ro_t5 --hub someone/corpus --vocabulary ro/spiece.model --model t5_1_1_large --out runs/ro_large
    spanloom train ro_t5 --text 'ro/*.jsonl.gz' --start mt5_base/checkpoint_1000000 --out runs/ro_mt5

The values of dumitrescustefan/t5x_models: 128 sequences of 512 tokens, 15 % masked in spans of 3, no dropout,
Adafactor at 1 / sqrt(max(step, 10,000)), for mT5 at 0.4 of that from step 1,000,000 on with the checkpoint's own state;
2,000,000 steps from scratch, 1,000,000 more of mT5. Targets have the 114 tokens that such spans come to, where the
original had 256 or 512, most of them padding. A data set of the Hub is streamed, and a stopped run goes on with
the example that it was at, however it was split among hosts. `spanloom convert runs/ro_base exported --to hf --which
all` exports every checkpoint that is kept.

Hardware: base on a v4-8, large on a v4-32, as there; compiled for it, a step of base takes 9.7 GiB of the 30.75 of a
chip. Cost of base, counted and not measured: 5.7e13 FLOPs a step, 1.1e20 and at least 54 hours in all. The original
states no loss; nobody has run these defaults to their end with Spanloom.
"""

from dataclasses import replace
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes import pretrain
from spanloom.recipes._start import going_on
from spanloom.settings.follow import Follow
from spanloom.settings.optimizer import Adafactor, Rsqrt
from spanloom.settings.row_sources import HuggingFaceDataset
from spanloom.settings.run import Checkpoints, Evaluation, Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Errors, Task

_SIZE, _PIECES = "t5_1_1_base", 64_000


def recipe(
    text: tuple[str, ...] = (),
    hub: str | None = None,
    vocabulary: str | None = None,
    model: Literal["t5_1_1_base", "t5_1_1_large"] | None = None,
    vocab_size: int | None = None,
    start: str | None = None,
    heldout_share: float = 0.001,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    errors: Errors = "strict",
) -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or compressed. It or --hub must be given.
      hub: A data set of the Hugging Face Hub with a column "text" and splits train and validation, streamed.
      vocabulary: A SentencePiece model file, such as `vocab train` makes; unset: that of --start.
      model: Its size, from scratch (unset: base); with --start it is that of the checkpoint.
      vocab_size: Rows of the embedding, from scratch: the vocabulary's size or more; unset: 64,000.
      start: A released mT5 to continue, as T5X, Mesh TensorFlow or Hugging Face have it.
      heldout_share: Share of the documents of --text that is kept out of training.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
    """
    if bool(text) == (hub is not None):
        raise SettingsError("give --text FILES or --hub DATASET, one of them")
    if start is None and vocabulary is None:
        raise SettingsError("--vocabulary is missing: a SentencePiece model file (`spanloom vocab train` makes one)")
    if start is not None and (model is not None or vocab_size is not None):
        raise SettingsError("--model and --vocab-size are those of --start: leave them out")
    base = pretrain.recipe(
        text=text,
        heldout_share=heldout_share,
        field=field,
        unit=unit,
        errors=errors,
        vocabulary=vocabulary,
        model=model or (_SIZE if start is None else None),
        start=start,
    )
    assert isinstance(base.task, Task)
    size = named(model or _SIZE, vocab_size=vocab_size or _PIECES) if start is None else base.model
    follow, schedule = (Follow(), Rsqrt()) if start is None else going_on(start)
    task = base.task
    if hub is not None:
        task = replace(task, source=HuggingFaceDataset(hub, heldout_split="validation", streaming=True))
    return replace(
        base,
        name="ro_t5",
        task=task,
        model=replace(size, dtype="bfloat16"),
        optimizer=Adafactor(learning_rate=1.0 if start is None else 0.4),
        schedule=schedule,
        follow=follow,
        batch_size=128,
        steps=2_000_000 if start is None else 1_000_000,
        checkpoint=Checkpoints(every=10_000, keep=5),
        eval=Evaluation(every=1000, max_batches=20),
    )
