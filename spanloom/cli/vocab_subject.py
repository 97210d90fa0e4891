"""The vocabulary that a word names: bytes, a SentencePiece file, or whatever a checkpoint was trained with."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.cli.errors import CommandError


@dataclass(frozen=True)
class Subject:
    """A vocabulary and what belongs to it."""

    settings: Any
    """As `spanloom.settings.vocabulary` has it."""
    name: str
    """What it is, in words."""
    rows: int | None = None
    """Rows of the checkpoint's embedding."""


def find_vocabulary(word: str, which: str = "last", extra_ids: int = 100) -> Subject:
    """What `word` names: bytes (or a byt5 size), a .model file, or a model: a run's, a checkpoint's, a folder's.

    `extra_ids` are appended to a file without sentinels of its own. Raises CommandError for a published size whose
    file must be named; ConversionError, CheckpointError or VocabularyError where it is nothing of the kind.
    """
    from spanloom.model.sizes import SIZES
    from spanloom.settings.vocabulary import Bytes, SentencePiece

    path, key = Path(word).expanduser(), word.lower().replace("-", "_").replace(".", "_")
    if not path.exists() and (key == "bytes" or key.startswith("byt5")):
        return Subject(Bytes(), "bytes, as ByT5 has them", SIZES[key].vocab_size if key in SIZES else None)
    if not path.exists() and key in SIZES:
        raise CommandError(f"{word}: the vocabulary of this size is a SentencePiece file, which is not here: name it")
    if path.is_file() and path.suffix != ".index":
        return Subject(SentencePiece(str(path), extra_ids=extra_ids), f"SentencePiece {path}")
    return _of_checkpoint(path, which)


def _of_checkpoint(path: Path, which: str) -> Subject:
    from spanloom.conversion.detect import KINDS, detect

    kind = detect(path)
    if kind == "huggingface":
        from spanloom.conversion.huggingface import read_settings

        read = read_settings(path)
        return Subject(read.vocabulary, f"that of {path}, {KINDS[kind]}", read.model.vocab_size)
    if kind == "t5x":
        from spanloom.conversion.t5x import open_t5x

        opened = open_t5x(path, which)
        found = opened.vocabulary()
        if found is None:
            raise CommandError(f"{path} is {KINDS[kind]}, which holds no vocabulary: name its .model file")
        return Subject(found.vocabulary, f"that of {path}, {KINDS[kind]}", opened.model.vocab_size)
    if kind == "converted":
        from spanloom.training.converted import stored_converted

        model = stored_converted(path)
        return Subject(model.vocabulary, f"that of {path}, {KINDS[kind]}", model.model.vocab_size)
    from spanloom.training.checkpoint_paths import open_checkpoint
    from spanloom.training.facts import read_facts, vocabulary_inside, vocabulary_of

    checkpoint = open_checkpoint(path, which)
    facts = read_facts(checkpoint)
    vocabulary_of(checkpoint, facts)  # that it is the one which was written
    return Subject(vocabulary_inside(checkpoint, facts.run), f"that of {checkpoint}", facts.run.model.vocab_size)
