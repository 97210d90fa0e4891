"""Whether files still hold the text that stores were built from: read, with no tokens made and nothing written."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from spanloom.pipeline.groups import groups_of
from spanloom.pipeline.row_fingerprint import code_changes
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.store import Store
from spanloom.settings.task import Task
from spanloom.tasks.functions import described
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.sources import source_fingerprint
from spanloom.tasks.task_rows import read_task


def changed_code(task: Task, stores: Mapping[Split, Store | SpoolIndex]) -> str:
    """What is other in the task's preprocessors than in those that made the stores, in words; empty if nothing is."""
    if not task.preprocessors:
        return ""
    now = [described(function) for function in task.preprocessors]
    built = [fingerprint_of(one).get("preprocessors") for one in stores.values()]
    old = next((one for one in built if one is not None and one != now), None)
    return "" if old is None else code_changes(old, now)


def fingerprint_of(part: Store | SpoolIndex) -> dict[str, Any]:
    """What decided the content of a store, or of the shards of a stream, when it was made."""
    fingerprint: dict[str, Any] = part.fingerprint if isinstance(part, SpoolIndex) else part.meta["fingerprint"]
    return fingerprint


def changed_texts(task: Task, stores: Mapping[Split, Store]) -> set[Split]:
    """The parts of the task whose text is no longer that of their store, which was built with these settings.

    Files that look as they did, or that cannot be found, are not read, and reading ends once every part differs.
    Raises BadInputError on bad input in what is read.
    """
    try:
        source = source_fingerprint(task.source)
    except (BadInputError, OSError):
        return set()  # such stores are used as they are
    if all(store.meta["fingerprint"]["source"] == source for store in stores.values()):
        return set()
    built = {split: [entry["text_sha256"] for entry in store.meta["shards"]] for split, store in stores.items()}
    (shard_bytes,) = {store.meta["fingerprint"]["shard_bytes"] for store in stores.values()}
    changed: set[Split] = set()
    seen = Counter[Split]()
    for group in groups_of(read_task(task, {split: ReadReport() for split in stores}), shard_bytes):
        seen[group.split] += 1
        if built[group.split][group.number : group.number + 1] != [group.text_hash()]:
            changed.add(group.split)
        if len(changed) == len(stores):
            break
    return changed | {split for split, hashes in built.items() if seen[split] < len(hashes)}
