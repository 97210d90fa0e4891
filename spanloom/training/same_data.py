"""Whether a run that goes on still learns from the data it began with: the text of each part, and the vocabulary."""

import contextlib
from collections.abc import Collection
from pathlib import Path

from spanloom.pipeline.data import PARTS, VOCABULARY, Data, store_directories
from spanloom.pipeline.same_text import changed_texts
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.store import Store, open_store
from spanloom.settings.compare import changes, within
from spanloom.settings.run import Run
from spanloom.settings.vocabulary import SentencePiece
from spanloom.tasks.heldout import Split
from spanloom.training.checkpoint_paths import check_intact
from spanloom.training.facts import Facts, vocabulary_of
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary, VocabularyError

TEXT_SETTINGS = ("task.source", "task.vocabulary", "task.version", "task.objective.separator")
"""Settings that decide the text and its tokens: whoever changed one, and had it accepted, expects other data."""
TEXT = "task.source.files"
PUT_BACK = "Put the files back as they were"


class ChangedDataError(ValueError):
    """The data differ from those that the checkpoint was trained on, under the same settings."""


def vocabulary_for(checkpoint: Path, facts: Facts, run: Run, accepted: Collection[str]) -> Vocabulary:
    """The vocabulary to go on with: the checkpoint's own, so that its original file may be gone.

    If other vocabulary settings were asked for, or its file now holds another one and that is accepted, then that one.
    Raises ChangedDataError if the file holds another one, CheckpointError if the checkpoint is damaged, and
    VocabularyError.
    """
    wanted, had = run.task.vocabulary, facts.run.task.vocabulary
    if wanted != had:
        return build(wanted)
    kept = vocabulary_of(checkpoint, facts)
    if not isinstance(wanted, SentencePiece) or not Path(wanted.path).is_file():
        return kept
    if within("task.vocabulary.path", accepted):
        return build(wanted)
    try:
        same = build(wanted).fingerprint() == kept.fingerprint()
    except VocabularyError:
        same = False
    if not same:
        fix = f"Put it back, or move {wanted.path} away (the checkpoint has a copy of what it was)"
        raise _refusal(checkpoint, [VOCABULARY], fix)
    return kept


def refuse_changed_text(checkpoint: Path, facts: Facts, run: Run, directory: Path, accepted: Collection[str]) -> None:
    """Raise ChangedDataError where `changed_parts` would, before the stores in the run directory are built anew.

    Only where these still hold what the checkpoint learnt from: others are nothing to lose. Nothing is written.
    """
    if _asked_for(facts, run) or within(TEXT, accepted):
        return
    changed = changed_texts(run.task, stores_learnt_from(facts, run, directory))
    if changed:
        raise _refusal(checkpoint, [part for part in PARTS if part in changed], PUT_BACK)


def stores_learnt_from(facts: Facts, run: Run, directory: Path) -> dict[Split, Store]:
    """Those stores in the run directory that still hold what the checkpoint learnt from. Nothing is written."""
    stores: dict[Split, Store] = {}
    for split, place in store_directories(run.task, directory).items():
        with contextlib.suppress(FileNotFoundError, DamagedStoreError, KeyError, TypeError):
            store = open_store(place)
            if store.content == facts.content.get(split):
                stores[split] = store
    return stores


def changed_parts(checkpoint: Path, facts: Facts, run: Run, data: Data, accepted: Collection[str]) -> list[str]:
    """Which parts of the data ("train", "heldout", "vocabulary") are others than when the checkpoint was written.

    Raises ChangedDataError if their text changed, without a change of settings, and that is not accepted.
    """
    if not facts.content:
        return []  # written before checkpoints kept it
    now = data.content
    found = [part for part in PARTS if facts.content.get(part) != now.get(part)]
    if VOCABULARY in found:
        found = [VOCABULARY]  # the hashes of the texts depend on it
    field = "task.vocabulary.path" if VOCABULARY in found else TEXT
    if found and not _asked_for(facts, run) and not within(field, accepted):
        raise _refusal(checkpoint, found, PUT_BACK)
    return found


def _asked_for(facts: Facts, run: Run) -> bool:
    """Whether settings that decide the text and its tokens were changed."""
    return any(
        within(change.field, TEXT_SETTINGS) or change.field == "task.objective" for change in changes(facts.run, run)
    )


def _refusal(checkpoint: Path, parts: list[str], fix: str) -> ChangedDataError:
    check_intact(checkpoint)  # what is compared with comes from there
    names = " and ".join(PARTS[part] for part in parts)
    return ChangedDataError(
        f"the data are not those that {checkpoint} was trained on, although the settings are the same: {names} "
        f"changed. {fix}; or go on from that checkpoint in a new directory with --fork NEW_DIR; or change this run "
        f"from here on with --accept-change {'task.vocabulary' if VOCABULARY in parts else 'task.source'}"
    )
