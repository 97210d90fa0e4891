"""A task's spool in its directory: as it stands, begun, or begun anew where what decides its rows has changed."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from spanloom.pipeline.build import SHARD_BYTES
from spanloom.pipeline.build_progress import BuildProgress, Progress
from spanloom.pipeline.durable import locked, sync_directory
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.fingerprint import changes, probes_changed, settings_fingerprint
from spanloom.pipeline.shard_maker import Count
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.spool.index import SpoolIndex, begin
from spanloom.pipeline.spool.marks import Mark, from_data, to_data
from spanloom.pipeline.spool.shards import probes_of, verify
from spanloom.pipeline.spool.spool import Spool, lock_of
from spanloom.pipeline.store import ALWAYS_CHECKED, Warn
from spanloom.pipeline.tokenization import encoder_of
from spanloom.settings.objectives import Supervised, TokenStream
from spanloom.settings.row_sources import Streamed
from spanloom.settings.task import Task
from spanloom.tasks.heldout import bound_for
from spanloom.tasks.objectives.build import denoiser_of
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.row_sources import check_settings, row_source_fingerprint
from spanloom.tasks.row_streams import open_stream
from spanloom.tasks.rows import pack_row
from spanloom.vocabularies.vocabulary import Vocabulary

FORMAT = 1
"""Raised when the same settings and stream give other shards."""


def spool_directory(store: Path) -> Path:
    """Where the spool stands of what would else be the store in this directory."""
    return store.with_name(store.name + ".spool")


def heldout_task(task: Task) -> Task:
    """The task as its held-out part is made: of so many rows from the beginning, in a store like any other."""
    assert isinstance(task.source, Streamed)
    take, kind = task.source.heldout_take, type(task.source)
    # how the rest of the stream is kept decides nothing of it
    source = replace(task.source, take=take, shard_rows=kind.shard_rows, heldout_take=kind.heldout_take)
    return replace(task, source=source)


def check_stream(task: Task) -> None:
    """Raises DataError, or BadInputError, for a task whose rows can be no stream."""
    assert isinstance(task.source, Streamed)
    check_settings(task.source)
    objective = task.objective
    if task.deduplicate:
        raise DataError(
            f"task {task.name!r}: deduplicate remembers every row, and a stream has no last one: leave it unset, or "
            "set task.source.take"
        )
    if isinstance(objective, Supervised):
        missing = [f"task.objective.{name}" for name in _LENGTHS if getattr(objective, name) is None]
        if missing:
            raise DataError(
                f"task {task.name!r}: nobody knows the longest example of a stream beforehand: set "
                f"{' and '.join(missing)} (and task.objective.too_long to trim, to cut what is longer)"
            )


_LENGTHS = ("inputs_length", "targets_length")


def spool_fingerprint(task: Task, vocabulary: Vocabulary) -> dict[str, Any]:
    """Everything but what the stream holds that decides the shards, as JSON data."""
    found = settings_fingerprint(task, "train", vocabulary, SHARD_BYTES)
    chunks = None
    if isinstance(task.objective, TokenStream):
        objective = task.objective
        chunks = [denoiser_of(objective, vocabulary).raw_length, objective.merge, objective.concat_documents]
    return {**found, "spool": FORMAT, "chunks": chunks}


def open_spool(
    task: Task,
    directory: Path,
    vocabulary: Vocabulary,
    *,
    stands: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    checksum: bool = False,
    warn: Warn,
) -> SpoolIndex:
    """The spool of a task in its directory, with one shard at least.

    Where there is none it begins with the stream, or where `stands` says (see `standing`) if that is of the very same
    settings and stream. What decides its rows and has changed is said, and it begins anew. Of shards that are there,
    sizes are checked, every byte where `checksum` asks for it or they are small; the damaged are made again. Raises
    DataError and BadInputError, and what making a shard raises.
    """
    check_stream(task)
    wanted = spool_fingerprint(task, vocabulary)
    source = _source_now(task)
    index, reason = _find(task, directory, vocabulary, wanted, source)
    if index is None:
        if isinstance(source, Exception):
            raise source
        with locked(lock_of(directory), lambda: warn(f"waiting for another process that makes {directory}")):
            index, reason = _find(task, directory, vocabulary, wanted, source)
            if index is None:
                if reason:
                    warn(f"the stream in {directory} begins anew: {reason}")
                index = _begin(task, directory, vocabulary, {**wanted, "source": source}, stands)
    elif isinstance(source, Exception):
        warn(f"the source of {directory} cannot be read now ({source}); what is kept of its stream is used")
    kept = sum(index.paths(shard)[0].stat().st_size for shard in index.kept())
    verify(index, checksum=checksum or kept <= ALWAYS_CHECKED)
    if index.last.examples == index.base.examples:
        _make_first(task, vocabulary, index, progress, warn)
    return index


def standing(index: SpoolIndex, example: int) -> dict[str, Any]:
    """Where a stream stands, for one who goes on from this example in another directory; JSON data."""
    shard = index.last.shard
    while shard > index.base.shard and index.mark(shard).examples > example:
        shard -= 1
    return {"fingerprint": index.fingerprint, "bound": index.bound, "mark": to_data(index.mark(shard))}


def _begin(
    task: Task, directory: Path, vocabulary: Vocabulary, fingerprint: dict[str, Any], stands: Mapping[str, Any] | None
) -> SpoolIndex:
    base = Mark()
    if stands is not None and stands["fingerprint"] == fingerprint:
        base, bound = from_data(stands["mark"]), int(stands["bound"])
    else:
        bound = _bound(task)
    building, stale = (directory.with_name(directory.name + end) for end in (".building", ".stale"))
    for path in (building, stale):
        shutil.rmtree(path, ignore_errors=True)
    dtypes = {name: dtype.name for name, dtype in encoder_of(task, vocabulary).dtypes.items()}
    begin(building, fingerprint, dtypes, bound, base)
    if directory.exists():
        directory.rename(stale)
    building.rename(directory)
    sync_directory(directory.parent)
    shutil.rmtree(stale, ignore_errors=True)
    return SpoolIndex(directory)


def _bound(task: Task) -> int:
    """Rows whose hash is below it are held out: as the store of the held-out part has it."""
    source = task.source
    assert isinstance(source, Streamed)
    if source.heldout_split or not source.heldout_share:
        return 0
    rows = islice(open_stream(source).rows, source.heldout_take)
    return bound_for(source.heldout_share, ([pack_row(row)] for row in rows))


def _make_first(task: Task, vocabulary: Vocabulary, index: SpoolIndex, progress: Progress | None, warn: Warn) -> None:
    spool = Spool(task, vocabulary, index, warn)
    sofar = Count(0, 0, 0, found=False)

    def tell(done: Count) -> None:
        nonlocal sofar
        examples, tokens = sofar.examples + done.examples, sofar.tokens + done.tokens
        sofar = Count(examples, sofar.text_bytes + done.text_bytes, tokens, found=False)
        show(finished=False)

    def show(*, finished: bool) -> None:
        if progress:
            counts = sofar.examples, sofar.text_bytes, sofar.tokens
            progress(BuildProgress(task.name, "train", *counts, int(finished), finished))

    with spool.lock(wait=True):
        while index.last.examples == index.base.examples:
            spool.make(index.last.shard, tell)
    show(finished=True)


_Source = str | BadInputError | OSError


def _source_now(task: Task) -> _Source:
    assert isinstance(task.source, Streamed)
    try:
        return row_source_fingerprint(task.source)
    except (BadInputError, OSError) as error:
        return error


def _find(
    task: Task, directory: Path, vocabulary: Vocabulary, wanted: dict[str, Any], source: _Source
) -> tuple[SpoolIndex | None, str]:
    """The spool, if it can be used; else why it cannot."""
    try:
        index = SpoolIndex(directory)
    except FileNotFoundError:
        return None, ""
    except DamagedStoreError as error:
        return None, f"it is damaged ({error})"
    if reason := changed(task, index, vocabulary, wanted, source):
        return None, reason
    return index, ""


def source_changed(task: Task, index: SpoolIndex) -> bool:
    """Whether the source says that it gives other rows than when the spool began; not where it cannot be asked."""
    source = _source_now(task)
    return not isinstance(source, Exception) and source != index.fingerprint["source"]


def changed(task: Task, index: SpoolIndex, vocabulary: Vocabulary, wanted: dict[str, Any], source: _Source) -> str:
    """What decides the rows and is other now than when the spool began, in words; empty if nothing is."""
    stored = dict(index.fingerprint)
    before = stored.pop("source", None)
    found = changes(stored, wanted)
    if not isinstance(source, Exception):
        found += changes({"source": before}, {"source": source})
    if found:
        return "changed: " + "; ".join(found)
    probes = probes_of(index)
    if count := probes_changed(task, vocabulary, probes):
        return f"changed: tokenization ({count} of {len(probes)} probes give other ids)"
    return ""
