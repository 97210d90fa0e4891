"""Whether a start was trained with the vocabulary of the run, and how its rows move where it was not."""

from pathlib import Path

from spanloom.settings.run import Run
from spanloom.settings.vocabulary import SentencePiece, Vocabulary
from spanloom.vocabularies.build import build
from spanloom.vocabularies.correspondence import Correspondence, correspond
from spanloom.vocabularies.vocabulary import padded


class OtherVocabularyError(ValueError):
    """The start was trained with another vocabulary; the message says what can be done."""


def moved_vocabulary(path: Path, saved: Vocabulary | None, run: Run) -> Correspondence | None:
    """How the rows of the checkpoint at `path` move, as `run.follow.vocabulary` has it; None if they stay.

    Raises OtherVocabularyError where the vocabularies differ and nothing is said of it, or they cannot move;
    VocabularyError for a file that is no vocabulary.
    """
    policy = run.follow.vocabulary
    if policy == "by_id" or (policy == "same" and saved is None):
        return None
    if saved is None:
        raise OtherVocabularyError(
            f"{path} does not say which vocabulary it was trained with, so its rows cannot move by piece: put the "
            "SentencePiece model that it was trained with beside it, as spiece.model"
        )
    if type(saved) is type(run.vocabulary) and build(saved).fingerprint() == build(run.vocabulary).fingerprint():
        return None
    if policy == "same":
        if is_other(saved, run.vocabulary):
            raise OtherVocabularyError(_refusal(path, saved, run))
        return None
    return _moved(path, saved, run)


def is_other(saved: Vocabulary, wanted: Vocabulary) -> bool:
    """Whether ids of text mean something else; sentinels alone may differ."""
    return type(saved) is not type(wanted) or build(saved).files() != build(wanted).files()


def _refusal(path: Path, saved: Vocabulary, run: Run) -> str:
    size = build(run.vocabulary).size
    rows = "" if run.model.vocab_size >= size else f" --model.vocab-size {padded(size)}"
    return (
        f"{path} was trained with another vocabulary ({_named(saved)}) than this run has ({_named(run.vocabulary)}): "
        f"ids mean something else. Give --follow.vocabulary by_piece{rows} to have its rows moved by piece (what it "
        "lacks begins as the mean of its parts), the vocabulary that it was trained with, or --follow.vocabulary by_id "
        "to train on with every row where it is"
    )


def _moved(path: Path, saved: Vocabulary, run: Run) -> Correspondence:
    if run.follow.optimizer == "continue":
        raise OtherVocabularyError(
            f"the rows of {path} move by piece, and those of its optimizer's state cannot: give "
            "--follow.optimizer reset"
        )
    moved = correspond(build(saved), build(run.vocabulary), run.follow.new_rows)
    if len(moved.old_ids) > run.model.vocab_size:
        raise OtherVocabularyError(
            f"the vocabulary has {len(moved.old_ids):,} ids and model.vocab_size is {run.model.vocab_size}: give "
            f"--model.vocab-size {padded(len(moved.old_ids))}"
        )
    return moved


def _named(vocabulary: Vocabulary) -> str:
    name = vocabulary.path if isinstance(vocabulary, SentencePiece) else "bytes"
    return f"{name}, {build(vocabulary).size:,} ids"
