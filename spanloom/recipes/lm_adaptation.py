"""LM adaptation: a model of span corruption learns to go on with text, in one language or many, before prompts.

    spanloom train lm_adaptation --text en='mc4/en/*.json.gz' sv='mc4/sv/*.json.gz' --start mt5-xxl/ \\
        --slice v4-256 --out runs/lm
    spanloom train mt0 --data xP3 --start runs/lm --out runs/mt0

Prefix LM: the encoder reads the beginning of a text, of random length, and the decoder writes the rest (Raffel et al.
2020, Lester et al. 2021). Languages are drawn by their number of documents to the power 0.3, as mT5 draws them.

The project that this redoes (multilingual-t0) left model, batch, length and steps blank. They are filled with what
T5's own LM adaptation had, and its figure of 1.05e11 tokens confirms it: mT5 xl or xxl (of --start), 2,048 sequences of
512 tokens, beginning and rest together, for 100,000 steps; the targets are as long as the rest can be. Dropout 0.
Adafactor at a constant 0.001 with a memory that begins anew, which is what 1 / sqrt(step) is at T5's million-th step;
to go on with the checkpoint's own memory and schedule, as T5 did: --follow.optimizer continue --follow.schedule
continue --schedule rsqrt --optimizer.learning-rate 1.

Hardware: a v4-256 (--slice). Compiled for it (`spanloom plan lm_adaptation ... --slice v4-256 --on v4-256`) a step of
mT5 xxl takes 18.2 GiB of the 30.75 of a chip; cost, counted and not measured: 7.7e16 FLOPs a step, 7.7e21 and at least
184 hours in all.
Expect no published loss; models adapted so are released as mt5_lm_adapted, at step 1,100,000, to compare with. Nobody
has run these defaults to their end with Spanloom.
"""

from dataclasses import replace
from typing import Literal

from spanloom.recipes import multilingual
from spanloom.recipes._slices import on_slice
from spanloom.recipes._start import needed
from spanloom.settings.mesh import Mesh
from spanloom.settings.mixture import Unit, map_tasks
from spanloom.settings.objectives import PrefixLM
from spanloom.settings.optimizer import Adafactor, Constant
from spanloom.settings.run import Run
from spanloom.settings.task import Errors, Task

SLICES = {"v4-256": (Mesh(fsdp=32, tensor=4), 512)}
"""The mesh of a slice, and the sequences of a microbatch."""


def recipe(
    text: tuple[str, ...] = (),
    start: str | None = None,
    alpha: float = 0.3,
    size: Unit = "documents",
    heldout_share: float = 0.001,
    field: str = "text",
    unit: Literal["line", "document"] = "line",
    encoding: str = "utf-8",
    errors: Errors = "strict",
    inputs_length: int = 512,
    slice: Literal["v4-256"] | None = None,
) -> Run:
    """The run.

    Args:
      text: NAME=FILES of each language: a file or glob (.txt, .jsonl, .csv, .tsv, .parquet; compressed ones too); a
        name may come again with more files; without NAME= it is that of the file. Must be given.
      start: Checkpoint, run directory or Hugging Face folder to start from, such as mT5's. Must be given.
      alpha: Exponent on the size of a language: 1 draws by size, 0 all languages alike.
      size: What the size of a language counts.
      heldout_share: Share of the documents kept out of training.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      unit: What one document is in a .txt file: each line, or the whole file.
      encoding: Text encoding of the files.
      errors: What to do with bad input: stop, replace bytes, or skip and count.
      inputs_length: Tokens of a text's beginning and its rest, together.
      slice: The TPUs that it is to train on (xl and xxl): decides mesh, microbatches, bfloat16 and what is computed
        again; unset: all devices that are there, and what the flags say.
    """
    if start is None:
        raise needed("lm_adaptation")
    base = multilingual.recipe(
        text=text,
        alpha=alpha,
        size=size,
        heldout_share=heldout_share,
        field=field,
        unit=unit,
        encoding=encoding,
        errors=errors,
        start=start,
    )
    return on_slice(_adapted(base, inputs_length), SLICES[slice] if slice else None)


def example() -> tuple[Run, dict[str, str]]:
    """The run as help shows it before --text and --start are named."""
    run, told = multilingual.example()
    return _adapted(run, 512), told


def _adapted(run: Run, inputs_length: int) -> Run:
    def prefix_lm(task: Task) -> Task:
        return replace(task, objective=PrefixLM(inputs_length=inputs_length))

    return replace(
        run,
        name="lm_adaptation",
        task=map_tasks(run.task, prefix_lm),
        optimizer=Adafactor(learning_rate=1e-3),
        schedule=Constant(),
        batch_size=2048,
        steps=100_000,
    )
