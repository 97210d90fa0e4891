"""Small corpora, tasks and runs for the tests of the pipeline."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spanloom.pipeline.columns import Column
from spanloom.pipeline.shards import Ragged, ragged, token_dtype
from spanloom.pipeline.store import Store, open_or_build_all
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.read_report import ReadReport


def sentences(count: int, seed: int = 0) -> list[str]:
    """Made-up documents of different lengths, in several scripts."""
    words = ["the", "ship", "déjà", "snö", "книга", "水", "said", "a", "quite", "long-winded", "\n", "tale"]
    lines = []
    state = seed * 2 + 1
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        length, pick = 3 + (state >> 33) % 40, state >> 20
        lines.append(" ".join(words[(pick >> (i % 30)) % len(words)] for i in range(length)))
    return lines


def text_task(*files: str, heldout_share: float = 0.05, vocabulary=None, version: str = "1", **objective) -> Task:
    """Span corruption of text files, in bytes unless told."""
    settings = {"inputs_length": 64, "mean_span_length": 5.0, **objective}
    source = TextFiles(files=files, heldout_share=heldout_share)
    return Task("text", source, vocabulary or Bytes(), SpanCorruption(**settings), version=version)


def pair_task(*files: str, heldout_share: float = 0.0, vocabulary=None, **objective) -> Task:
    """A supervised task on pair files, in bytes unless told."""
    source = PairFiles(files=files, heldout_share=heldout_share)
    return Task("pairs", source, vocabulary or Bytes(), Supervised(**objective))


def tiny_run(task: Task, *, seed: int = 0, vocab_size: int = 384) -> Run:
    """A run whose model is of no interest."""
    model = Model(vocab_size, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
    return Run("test", task, model, seed=seed)


def column_of(*shards: Sequence[Sequence[int]], size: int = 384) -> Column:
    """A column whose shards hold these rows."""
    dtype = token_dtype(size)
    return Column([ragged_of(rows, dtype) for rows in shards], dtype)


def ragged_of(rows: Sequence[Sequence[int]], dtype) -> Ragged:
    """Rows of ids in one flat array of `dtype`."""
    return ragged(np.array([token for row in rows for token in row], dtype), [len(row) for row in rows])


def open_or_build(task: Task, split, directory: Path, vocabulary, *, report: ReadReport | None = None, **options):
    """The store of one part of a task."""
    reports = {} if report is None else {split: report}
    return open_or_build_all(task, {split: directory}, vocabulary, reports=reports, **options)[split]


def tokens_of(store: Store) -> np.ndarray:
    """The whole stream of the first column."""
    return store.stream.slice(0, store.num_tokens)


def kill_seed(*, fixed: bool) -> int:
    """What decides the moments of kills: the same each time, or another one; printed, and set by SPANLOOM_KILL_SEED."""
    seed = int(os.environ.get("SPANLOOM_KILL_SEED", 0 if fixed else time.time_ns() % 2**32))
    print(f"repeat with SPANLOOM_KILL_SEED={seed}")
    return seed
