"""Where the weights of a new run come from: a Spanloom checkpoint or a Hugging Face folder. Weights only."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from spanloom.model.params import declare, flatten, unflatten
from spanloom.settings.model import Model
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import Bytes, SentencePiece, Vocabulary
from spanloom.training.checkpoint_paths import is_checkpoint, is_run_directory, open_checkpoint
from spanloom.training.checkpoints import restore, vocabulary_inside

SHOWN = 5  # mismatches named in an error


class StartError(ValueError):
    """The start checkpoint cannot be used for this run; the message says why and what to do."""


@dataclass(frozen=True)
class Start:
    """Weights to start from."""

    params: Any
    """A tree of float32 arrays as the run's model declares it."""
    description: str
    """One line for the user."""
    warnings: tuple[str, ...] = ()
    """What the user should know before training on these weights."""


def load_start(run: Run) -> Start:
    """The weights that `run.start` names.

    Raises StartError if it is neither a Spanloom checkpoint nor a Hugging Face folder, or does not fit the model;
    CheckpointError if it is damaged.
    """
    path = Path(str(run.start)).expanduser()
    if is_checkpoint(path) or is_run_directory(path):
        restored = restore(open_checkpoint(path))
        notes: tuple[str, ...] = ()
        vocabulary: Vocabulary = vocabulary_inside(restored.path, restored.run)
        model, params = restored.run.model, restored.params
        description = f"weights of {restored.path} (step {restored.step}), optimizer fresh"
    elif (path / "config.json").is_file():
        from spanloom.conversion.huggingface import import_hf

        found = import_hf(path)
        model, params, vocabulary, notes = found.model, found.params, found.vocabulary, found.notes
        description = f"weights of the Hugging Face folder {path}, optimizer fresh"
    elif path.exists():
        raise StartError(
            f"start: {path} is neither a Spanloom run or checkpoint (checkpoints/STEP, or checkpoint.json) nor a "
            "Hugging Face folder (config.json and model.safetensors)"
        )
    else:
        raise StartError(
            f"start: {path} does not exist. Name a Spanloom run, one of its checkpoints/STEP, or a folder downloaded "
            "from Hugging Face (nothing is downloaded during training)"
        )
    check_fits(path, model, params, run.model)
    fitting = unflatten(run.model, {name: jnp.asarray(leaf, jnp.float32) for name, leaf in flatten(params).items()})
    return Start(fitting, description, (*notes, *vocabulary_warnings(path, vocabulary, run.task.vocabulary)))


def check_fits(path: Path, saved: Model, params: Any, wanted: Model) -> None:
    """Raise StartError, naming each difference, unless `params` have the shapes that `wanted` declares.

    Also refused are settings that change what the weights compute although all shapes agree.
    """
    if saved.vocab_size != wanted.vocab_size:
        raise StartError(
            f"start: the embedding in {path} has {saved.vocab_size} rows, the model of this run "
            f"{wanted.vocab_size} (model.vocab_size). Use the vocabulary that the checkpoint was trained with and "
            f"--model.vocab-size {saved.vocab_size}"
        )
    if saved.tie_embeddings != wanted.tie_embeddings:
        raise StartError(
            f"start: in {path} the output head {'shares' if saved.tie_embeddings else 'does not share'} the embedding; "
            f"set --model.tie-embeddings {saved.tie_embeddings}"
        )
    have = {name: tuple(leaf.shape) for name, leaf in flatten(params).items()}
    need = {name: tuple(spec.shape) for name, spec in flatten(declare(wanted)).items()}
    wrong = [
        f"{name} is {have.get(name, 'absent')} there, {need.get(name, 'absent')} here"
        for name in sorted(have.keys() | need.keys())
        if have.get(name) != need.get(name)
    ]
    if wrong:
        more = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise StartError(
            f"start: {path} holds another model ({saved.name}) than this run trains ({wanted.name}):\n  "
            + "\n  ".join(wrong[:SHOWN])
            + more
            + "\nName the model that belongs to the checkpoint with --model, or another --start."
        )
    same = ("activations", "relative_position_buckets", "relative_position_max_distance", "norm_epsilon")
    for field in same:
        if getattr(saved, field) != getattr(wanted, field):
            raise StartError(
                f"start: {path} was trained with {field} = {getattr(saved, field)}, this run has "
                f"{getattr(wanted, field)}: the weights would mean something else. Set model.{field} to what it was."
            )


def vocabulary_warnings(path: Path, saved: Vocabulary, wanted: Vocabulary) -> list[str]:
    """What differs between the vocabulary a checkpoint was trained with and this run's, as warnings."""
    if saved == wanted:
        return []
    if isinstance(saved, Bytes) and isinstance(wanted, Bytes):
        if saved.sentinels == wanted.sentinels:
            return []
        return [
            f"{path} was trained with the sentinels of {saved.sentinels!r}, this run uses those of "
            f"{wanted.sentinels!r}: their embedding rows begin untrained for this use. To keep what was learnt: "
            f"--task.vocabulary.sentinels {saved.sentinels}"
        ]
    if isinstance(saved, SentencePiece) and isinstance(wanted, SentencePiece):
        same_file = _content(saved.path) is not None and _content(saved.path) == _content(wanted.path)
        return [] if same_file else [f"{path} was trained with another SentencePiece model than {wanted.path}"]
    return [
        f"{path} was trained with a {type(saved).__name__} vocabulary, this run has {type(wanted).__name__}: every id "
        "means something else"
    ]


def _content(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes()
    except OSError:
        return None
