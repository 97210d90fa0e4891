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


def read_model(
    path: Path, which: str = "last", vocabulary: str | None = None, activations: str | None = None
) -> TrainedModel:
    """The model at `path`, in memory: a run directory, one of its checkpoints, a converted model, a Hugging Face folder
    or a T5X checkpoint.

    `which` chooses among the checkpoints of a run, see `open_checkpoint`. `vocabulary` names the one of a T5X
    checkpoint, or of a Hugging Face folder that holds none: a SentencePiece file, or "bytes"; `activations` those of
    one of T5X, "gelu,linear", which its weights do not show. Raises ConversionError where `path` is nothing that can be
    read, CheckpointError where there is no such checkpoint, it is damaged, or there is nothing to
    choose from.
    """
    kind = detect(path)
    if kind not in ("run", "checkpoint"):
        return _open(kind, path, which, vocabulary, activations).load()
    refuse_choice(kind, path, which, vocabulary, activations)
    restored = restore(open_checkpoint(path, which))
    facts = restored.facts
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), restored.params)  # they may be kept in bfloat16
    vocabulary_there = vocabulary_inside(restored.path, facts.run)
    return TrainedModel(facts.run.model, params, vocabulary_there, lineage_of(restored.path, facts))


def open_model(
    path: Path, which: str = "last", vocabulary: str | None = None, activations: str | None = None
) -> StoredModel:
    """Likewise, its weights unread, to be converted."""
    return _open(detect(path), path, which, vocabulary, activations)


def _open(kind: Kind, path: Path, which: str, vocabulary: str | None, activations: str | None) -> StoredModel:
    refuse_choice(kind, path, which, vocabulary, activations)
    if kind == "t5x":
        from spanloom.conversion.t5x import stored_t5x
        from spanloom.conversion.t5x_unseen import parse_activations

        return stored_t5x(path, which, vocabulary, parse_activations(activations) if activations else None)
    if kind == "huggingface":
        return stored_hf(path, vocabulary)
    return stored_converted(path) if kind == "converted" else stored_checkpoint(open_checkpoint(path, which))


def refuse_choice(kind: Kind, path: Path, which: str, vocabulary: str | None, activations: str | None) -> None:
    """Raise ConversionError or CheckpointError for what is chosen or told of a checkpoint that leaves no choice."""
    _refuse_told(path, kind, vocabulary, activations)
    if kind not in ("run", "t5x") and which != "last":
        raise CheckpointError(f"--which {which}: {path} is {KINDS[kind]}, and --which chooses among those of a run")


def _refuse_told(path: Path, kind: Kind, vocabulary: str | None, activations: str | None) -> None:
    """Raise ConversionError where a user says what a checkpoint of this kind says itself."""
    for flag, value in (("vocabulary", vocabulary), ("activations", activations)):
        # a Hugging Face folder may lack its tokenizer: its reader takes one then, and else refuses
        takes = ("t5x", "huggingface") if flag == "vocabulary" else ("t5x",)
        if value is not None and kind not in takes:
            own = "a vocabulary" if flag == "vocabulary" else "activations"
            raise ConversionError(path, f"is {KINDS[kind]}, which has {own} of its own: leave out --{flag}")
