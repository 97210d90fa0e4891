"""The weights that a path names, a run's, a Hugging Face folder's or T5X's, with all that belongs to them."""

from pathlib import Path

import jax
import jax.numpy as jnp

from spanloom.conversion.convert import model_from_hf
from spanloom.conversion.detect import KINDS, Kind, detect
from spanloom.conversion.errors import ConversionError
from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.training.checkpoint_paths import CheckpointError, open_checkpoint
from spanloom.training.checkpoints import restore
from spanloom.training.facts import vocabulary_inside
from spanloom.training.integrity import fingerprint


def read_model(
    path: Path, which: str = "last", vocabulary: str | None = None, activations: str | None = None
) -> TrainedModel:
    """The model at `path`: a run directory, one of its checkpoints, a Hugging Face folder or a T5X checkpoint.

    `which` chooses among the checkpoints of a run, see `open_checkpoint`. `vocabulary` names the one of a T5X
    checkpoint, which holds none: a SentencePiece file, or "bytes"; `activations` those of one of T5X, "gelu,linear",
    which its weights do not show. Raises ConversionError where `path` is
    nothing that can be read, CheckpointError where there is no such checkpoint, it is damaged, or there is nothing to
    choose from.
    """
    kind = detect(path)
    refuse_told(path, kind, vocabulary, activations)
    if kind == "t5x":
        from spanloom.conversion.t5x import model_from_t5x
        from spanloom.conversion.t5x_unseen import parse_activations

        return model_from_t5x(path, which, vocabulary, parse_activations(activations) if activations else None)
    if kind != "run" and which != "last":
        raise CheckpointError(f"--which {which}: {path} is {KINDS[kind]}, and --which chooses among those of a run")
    if kind == "huggingface":
        return model_from_hf(path)
    restored = restore(open_checkpoint(path, which))
    facts = restored.facts
    losses = {"training loss of the last step": facts.loss, "held-out loss": facts.heldout_loss}
    lineage = Lineage(
        origin=str(restored.path.resolve()),
        run=facts.run,
        step=facts.step,
        checkpoint=fingerprint(restored.path),
        losses={name: loss for name, loss in losses.items() if loss is not None},
        started_from=facts.started_from,
        versions={name: str(value) for name, value in facts.machine.items()},
    )
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), restored.params)  # they may be kept in bfloat16
    return TrainedModel(facts.run.model, params, vocabulary_inside(restored.path, facts.run), lineage)


def refuse_told(path: Path, kind: Kind, vocabulary: str | None, activations: str | None) -> None:
    """Raise ConversionError where a user says what a checkpoint of this kind says itself."""
    for flag, value in (("vocabulary", vocabulary), ("activations", activations)):
        if value is not None and kind != "t5x":
            own = "a vocabulary" if flag == "vocabulary" else "activations"
            raise ConversionError(path, f"is {KINDS[kind]}, which has {own} of its own: leave out --{flag}")
