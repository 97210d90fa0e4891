"""What a start checkpoint says of its model and vocabulary: settings only, no weights."""

from dataclasses import replace
from pathlib import Path

from spanloom.settings.follow import Follow
from spanloom.settings.model import Model
from spanloom.settings.optimizer import Rsqrt
from spanloom.settings.serialize import SettingsError
from spanloom.settings.vocabulary import SentencePiece, Vocabulary

_RELEASED_AT = 1_000_000
"""Step of Google's checkpoints of T5, mT5 and ByT5."""


def model_and_vocabulary(start: str) -> tuple[Model, Vocabulary]:
    """Model and vocabulary of a run directory, a checkpoint, ours or T5X's, or a Hugging Face folder.

    A SentencePiece path is that of the original where it still has the content kept in the checkpoint, else of the copy
    inside the checkpoint. Raises SettingsError where `start` is none of these.
    """
    from spanloom.conversion.detect import detect
    from spanloom.conversion.errors import ConversionError

    if not start.strip():
        raise SettingsError("--start is empty: name a run, one of its checkpoints/STEP or a Hugging Face folder")
    path = Path(start).expanduser()
    try:
        kind = detect(path)
    except ConversionError as error:
        gone = "" if path.exists() else " (a run that has begun goes on without its start: spanloom train DIR)"
        raise SettingsError(f"--start {error}{gone}") from None
    if kind == "huggingface":
        from spanloom.conversion.huggingface import read_settings

        settings = read_settings(path)
        return settings.model, settings.vocabulary
    if kind == "t5x":
        return _of_t5x(path)
    from spanloom.training.checkpoint_paths import CheckpointError, open_checkpoint
    from spanloom.training.facts import read_facts, vocabulary_inside

    try:
        checkpoint = open_checkpoint(path)
        run = read_facts(checkpoint).run
        vocabulary = vocabulary_inside(checkpoint, run)
    except CheckpointError as error:
        raise SettingsError(f"--start: {error}") from error
    if isinstance(vocabulary, SentencePiece) and isinstance(run.vocabulary, SentencePiece):
        vocabulary = replace(vocabulary, path=_same_file(run.vocabulary.path, Path(vocabulary.path)))
    return run.model, vocabulary


def _of_t5x(path: Path) -> tuple[Model, Vocabulary]:
    from spanloom.conversion.errors import ConversionError
    from spanloom.conversion.t5x import open_t5x

    try:
        opened = open_t5x(path)
        found = opened.vocabulary()
    except ConversionError as error:
        raise SettingsError(f"--start: {error}") from None
    if found is None:
        raise SettingsError(
            f"--start: {opened.checkpoint.path} is of T5X, whose checkpoints hold no vocabulary: put the SentencePiece "
            f"model that it was trained with beside it, as {opened.checkpoint.path.parent / 'spiece.model'}"
        )
    return opened.model, found.vocabulary


def going_on(start: str) -> tuple[Follow, Rsqrt]:
    """How pretraining of a released model goes on: with its optimizer's state, at the step that it had come to.

    A Hugging Face folder has neither: its optimizer begins anew, with the schedule where Google's models had come to.
    """
    from spanloom.conversion.detect import detect

    if detect(Path(start).expanduser()) == "huggingface":
        return Follow(), Rsqrt(step_offset=-_RELEASED_AT)
    return Follow(optimizer="continue", schedule="continue"), Rsqrt()


def needed(recipe: str) -> SettingsError:
    """The error where no start is named."""
    return SettingsError(
        f"{recipe} needs --start: a run directory, one of its checkpoints/STEP or a Hugging Face folder"
    )


def _same_file(original: str, copy: Path) -> str:
    """The original while it is what it was: checkpoints come and go, and the path is one of the run's settings."""
    try:
        return original if Path(original).read_bytes() == copy.read_bytes() else str(copy)
    except OSError:
        return str(copy)
