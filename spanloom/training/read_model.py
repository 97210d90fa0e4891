"""The model that a path names, a run's, a Hugging Face folder's or T5X's, with all that belongs to it."""

from pathlib import Path

import jax
import jax.numpy as jnp

from spanloom.conversion.convert import stored_hf
from spanloom.conversion.detect import KINDS, Kind, detect
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.stored_model import StoredModel
from spanloom.conversion.trained_model import TrainedModel
from spanloom.training.ancestry import lineage_of
from spanloom.training.checkpoint_paths import CheckpointError, open_checkpoint
from spanloom.training.checkpoints import restore
from spanloom.training.converted import stored_converted
from spanloom.training.facts import vocabulary_inside
from spanloom.training.stored_checkpoint import stored_checkpoint


def read_model(path: Path, which: str = "last", vocabulary: str | None = None) -> TrainedModel:
    """The model at `path`, in memory: a run directory, one of its checkpoints, a converted model, a Hugging Face folder
    or a T5X checkpoint.

    `which` chooses among the checkpoints of a run, see `open_checkpoint`. `vocabulary` names the one of a T5X
    checkpoint, which holds none: a SentencePiece file, or "bytes". Raises ConversionError where `path` is
    nothing that can be read, CheckpointError where there is no such checkpoint, it is damaged, or there is nothing to
    choose from.
    """
    kind = detect(path)
    if kind not in ("run", "checkpoint"):
        return _open(kind, path, which, vocabulary).load()
    _refuse_choice(kind, path, which, vocabulary)
    restored = restore(open_checkpoint(path, which))
    facts = restored.facts
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), restored.params)  # they may be kept in bfloat16
    vocabulary_there = vocabulary_inside(restored.path, facts.run)
    return TrainedModel(facts.run.model, params, vocabulary_there, lineage_of(restored.path, facts))


def open_model(path: Path, which: str = "last", vocabulary: str | None = None) -> StoredModel:
    """Likewise, its weights unread, to be converted."""
    return _open(detect(path), path, which, vocabulary)


def _open(kind: Kind, path: Path, which: str, vocabulary: str | None) -> StoredModel:
    _refuse_choice(kind, path, which, vocabulary)
    if kind == "t5x":
        from spanloom.conversion.t5x import stored_t5x

        return stored_t5x(path, which, vocabulary)
    if kind == "huggingface":
        return stored_hf(path)
    return stored_converted(path) if kind == "converted" else stored_checkpoint(open_checkpoint(path, which))


def _refuse_choice(kind: Kind, path: Path, which: str, vocabulary: str | None) -> None:
    if vocabulary is not None and kind != "t5x":
        raise ConversionError(path, f"is {KINDS[kind]}, which has a vocabulary of its own: leave out --vocabulary")
    if kind not in ("run", "t5x") and which != "last":
        raise CheckpointError(f"--which {which}: {path} is {KINDS[kind]}, and --which chooses among those of a run")
