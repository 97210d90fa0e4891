"""Whether a run that goes on still learns from the data it began with: the text of each part, and the vocabulary."""

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path

from spanloom.pipeline.data import VOCABULARY, Data, Part, in_words, part_name, store_directories
from spanloom.pipeline.same_text import changed_code, changed_texts
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.spool.opening import heldout_task, source_changed
from spanloom.pipeline.spool.shards import same_content
from spanloom.pipeline.store import Store, open_store
from spanloom.settings.compare import changes, within
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.task import Task
from spanloom.settings.vocabulary import SentencePiece
from spanloom.tasks.heldout import Split
from spanloom.training.checkpoint_paths import check_intact
from spanloom.training.facts import Facts, vocabulary_of
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary, VocabularyError

CODE = ("task.preprocessors", "task.features", "task.deduplicate")
"""Settings that decide what is made of the text."""
TEXT_SETTINGS = ("task.source", "task.vocabulary", "task.version", "task.objective.separator", "task.parts", *CODE)
"""Settings that decide the text and its tokens: whoever changed one, and had it accepted, expects other data."""
_TEXT = ("task.source.files", "task.preprocessors", "task.parts")
"""What is accepted where changed text, or what is made of it, is: of a task, of a mixture."""
_WHOLE = ("task", "task.objective")
"""Settings of which another kind decides the text, too."""
PUT_BACK = "Put the files back as they were"


class ChangedDataError(ValueError):
    """The data differ from those that the checkpoint was trained on, under the same settings."""


def vocabulary_for(checkpoint: Path, facts: Facts, run: Run, accepted: Collection[str]) -> Vocabulary:
    """The vocabulary to go on with: the checkpoint's own, so that its original file may be gone.

    If other vocabulary settings were asked for, or its file now holds another one and that is accepted, then that one.
    Raises ChangedDataError if the file holds another one, CheckpointError if the checkpoint is damaged, and
    VocabularyError.
    """
    wanted, had = run.vocabulary, facts.run.vocabulary
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
    if _asked_for(facts, run) or _accepts_text(accepted):
        return
    stores, changed = stores_learnt_from(facts, run, directory), []
    for task in run.tasks:
        learnt_from = stores[task.name]
        if said := changed_code(task, learnt_from):
            raise _refusal_of_code(checkpoint, task, run, said)
        found = changed_parts_of(task, learnt_from)
        changed += [part_name(run.task, task, split) for split in learnt_from if split in found]
    if changed:
        raise _refusal(checkpoint, changed, PUT_BACK)


def changed_parts_of(task: Task, learnt_from: Mapping[Split, Part]) -> set[Split]:
    """The parts of a task whose source no longer gives what they hold; of a stream its source's own word is taken."""
    stores = {split: part for split, part in learnt_from.items() if isinstance(part, Store)}
    index = learnt_from.get("train")
    if not isinstance(index, SpoolIndex):
        return changed_texts(task, stores)
    found = changed_texts(heldout_task(task), stores) if stores else set()
    return {*found, "train"} if source_changed(task, index) else found


def stores_learnt_from(facts: Facts, run: Run, directory: Path) -> dict[str, dict[Split, Part]]:
    """Stores in the run directory, by task and part, that still hold what the checkpoint learnt from; nothing is
    written.
    """
    stores: dict[str, dict[Split, Part]] = {}
    for task in run.tasks:
        stores[task.name] = {}
        for split, place in store_directories(task, directory).items():
            with contextlib.suppress(FileNotFoundError, DamagedStoreError, KeyError, TypeError):
                content = facts.content.get(part_name(run.task, task, split), "")
                if split == "train" and is_stream(task.source):
                    index = SpoolIndex(place)
                    if same_content(index, content):
                        stores[task.name][split] = index
                    continue
                store = open_store(place)
                if store.content == content:
                    stores[task.name][split] = store
    return stores


def changed_parts(checkpoint: Path, facts: Facts, run: Run, data: Data, accepted: Collection[str]) -> list[str]:
    """Which parts of the data ("train", "heldout", "vocabulary") are others than when the checkpoint was written.

    Raises ChangedDataError if their text changed, without a change of settings, and that is not accepted.
    """
    if not facts.content:
        return []  # written before checkpoints kept it
    now = data.content_since(facts.content)
    found = [part for part in {**facts.content, **now} if facts.content.get(part) != now.get(part)]
    if VOCABULARY in found:
        found = [VOCABULARY]  # the hashes of the texts depend on it
    is_accepted = within("task.vocabulary.path", accepted) if VOCABULARY in found else _accepts_text(accepted)
    if found and not _asked_for(facts, run) and not is_accepted:
        raise _refusal(checkpoint, found, PUT_BACK)
    return found


def _accepts_text(accepted: Collection[str]) -> bool:
    return any(within(field, accepted) for field in _TEXT)


def _asked_for(facts: Facts, run: Run) -> bool:
    """Whether settings that decide the text and its tokens were changed."""
    return any(within(change.field, TEXT_SETTINGS) or change.field in _WHOLE for change in changes(facts.run, run))


def _refusal_of_code(checkpoint: Path, task: Task, run: Run, said: str) -> ChangedDataError:
    check_intact(checkpoint)
    field = "task.preprocessors" if isinstance(run.task, Task) else "task.parts"
    return ChangedDataError(
        f"the preprocessors of task {task.name!r} are not those that {checkpoint} was trained with, although the "
        f"settings are the same: {said}. Put the code back as it was; or go on from that checkpoint in a new directory "
        f"with --fork NEW_DIR; or change this run from here on with --accept-change {field}"
    )


def _refusal(checkpoint: Path, parts: list[str], fix: str) -> ChangedDataError:
    check_intact(checkpoint)  # what is compared with comes from there
    names = " and ".join(map(in_words, parts))
    text = "task.source" if {"train", "heldout"} & {*parts} else "task.parts"
    field = "task.vocabulary" if VOCABULARY in parts else text
    return ChangedDataError(
        f"the data are not those that {checkpoint} was trained on, although the settings are the same: {names} "
        f"changed. {fix}; or go on from that checkpoint in a new directory with --fork NEW_DIR; or change this run "
        f"from here on with --accept-change {field}"
    )
