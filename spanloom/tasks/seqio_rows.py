"""SeqioCaches: the rows of tasks that SeqIO cached."""

import glob
import os
from collections.abc import Iterator, Sequence
from typing import Any

from spanloom.settings.row_sources import SeqioCaches
from spanloom.tasks.file_system import exists, identity, size_of
from spanloom.tasks.read_report import BadInputError, Intake, ReadReport
from spanloom.tasks.remote_files import folders_like, forget, is_remote, refuse_secrets
from spanloom.tasks.seqio_cache import open_cache, read_cache


def read_seqio_caches(source: SeqioCaches, split: str, report: ReadReport) -> Iterator[dict[str, Any]]:
    """The examples of a split of each cache, shard by shard, see `spanloom.tasks.seqio_cache`. Raises BadInputError."""
    intake = Intake(report, source.errors)
    for folder in _folders(source):
        with intake.file_errors():
            yield from read_cache(open_cache(folder, split, intake), intake)


def identify_seqio_caches(source: SeqioCaches, splits: Sequence[str]) -> Iterator[bytes]:
    """What tells the files of these splits from any others. Raises BadInputError."""
    quiet = Intake(ReadReport(), source.errors)
    for folder in _folders(source):
        yield os.path.basename(folder.rstrip("/")).encode()
        for split in splits:
            with quiet.file_errors():
                cache = open_cache(folder, split, quiet)
                about = [os.path.join(folder, f"{kind}.{split}.json") for kind in ("info", "stats")]
                for path in [*filter(exists, about), *cache.shards]:
                    yield identity(path, source.errors)


def seqio_caches_bytes(source: SeqioCaches, splits: Sequence[str]) -> int:
    """Bytes of the shards of these splits. Raises BadInputError."""
    quiet, total = Intake(ReadReport(), source.errors), 0
    for folder in _folders(source):
        for split in splits:
            with quiet.file_errors():
                total += sum(size_of(path) for path in open_cache(folder, split, quiet).shards)
    return total


def _folders(source: SeqioCaches) -> list[str]:
    """The folders that are named, or that a glob finds. Raises BadInputError where there is none."""
    if not source.folders:
        raise BadInputError("folders", "no folder is named", "Name the tasks' folders: those that hold COMPLETED")
    found: dict[str, None] = {}
    for pattern in source.folders:
        found.update(dict.fromkeys(_matches(pattern)))
    return list(found)


def _matches(pattern: str) -> list[str]:
    remote = is_remote(pattern)
    if remote:
        refuse_secrets(pattern)
        forget(pattern)
    path = pattern if remote else os.path.expanduser(pattern)
    if not glob.has_magic(path) or (not remote and os.path.isdir(path)):
        return [path]
    found = folders_like(path, ReadReport()) if remote else sorted(filter(os.path.isdir, glob.glob(path)))
    whole = [folder for folder in found if exists(os.path.join(folder, "COMPLETED"))]
    if not whole:
        what = f"no folder that matches holds COMPLETED ({len(found)} match)"
        raise BadInputError(pattern, what, "Name the tasks' folders, such as 'cache/*'", reason="nothing found")
    return whole
