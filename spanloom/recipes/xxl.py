"""T5 1.1 xxl or mT5 xxl (11 and 13 thousand million parameters) from scratch on a TPU slice, with a mesh that fits.

    spanloom plan xxl --slice v4-128 --on v4-128
    spanloom train xxl --text 'corpus/*.txt.gz' --vocabulary my.model --slice v4-128 --out runs/xxl

Raffel et al. 2020 with 1.1's gated GELU and no dropout: 2,048 sequences of 512 tokens, 2^20 tokens a step, bfloat16
activations and float32 weights. Cost, counted and not measured: 4.3e16 FLOPs a step, 4.3e22 in a million steps. Nobody
has run this recipe to its end; that its step fits both slices was found by compiling it for them (`spanloom plan`).
"""

from dataclasses import replace
from typing import Literal

from spanloom.model.sizes import named
from spanloom.recipes import pretrain
from spanloom.settings.mesh import Mesh
from spanloom.settings.run import Checkpoints, Evaluation, Run

MESHES = {"v4-128": (Mesh(fsdp=16, tensor=4), 256), "v5e-256": (Mesh(fsdp=64, tensor=4), 256)}
"""The mesh of a slice, and the sequences of a microbatch."""


def recipe(
    text: tuple[str, ...] = (),
    vocabulary: str = "sentencepiece.model",
    field: str = "text",
    size: Literal["t5_1_1_xxl", "mt5_xxl"] = "t5_1_1_xxl",
    slice: Literal["v4-128", "v5e-256"] = "v4-128",
) -> Run:
    """The run.

    Args:
      text: Files or globs: .txt, .jsonl, .csv, .tsv, .parquet; plain or .gz, .zst, .bz2, .xz. Must be given.
      vocabulary: A SentencePiece model file.
      field: Field of a row that holds the text, or a template such as '{title}: {text}'.
      size: The model.
      slice: The TPUs that it is to train on: decides mesh and microbatches.
    """
    mesh, microbatch = MESHES[slice]
    return replace(
        pretrain.recipe(text=text, vocabulary=vocabulary, field=field, model=size),
        name="xxl",
        model=named(size, dtype="bfloat16", remat="cheap"),
        mesh=mesh,
        batch_size=2048,
        microbatch_size=microbatch,
        steps=1_000_000,
        checkpoint=Checkpoints(every=2000),
        eval=Evaluation(every=2000),
    )
