"""Where a store stands while it is built, and how it comes to its place: by one rename.

<store>.building/fingerprint.json   what is being built
<store>.building/entries/           one description for each whole shard
<store>.building/store/             the shards, and in the end meta.json; renamed to <store>
<store>.stale/                      the store that is being replaced, for an instant
<store>.lock                        held by who builds it: alone, or together with other jobs that make a share each
"""

import re
import shutil
from pathlib import Path

from spanloom.pipeline.durable import StorageError, sync_directory

_OWN_FILES = re.compile(r"(shard-\d+\.arrow|meta\.json)(\.part)?")


def building(directory: Path) -> Path:
    """Where the store of this directory is built."""
    return directory.with_name(directory.name + ".building")


def lock_of(directory: Path) -> Path:
    """The file that is locked while the store of this directory is built."""
    return directory.with_name(directory.name + ".lock")


def _stale(directory: Path) -> Path:
    return directory.with_name(directory.name + ".stale")


def publish(directory: Path) -> None:
    """Puts the finished store in its place. A kill in between leaves no store, never half a one."""
    stale = _stale(directory)
    shutil.rmtree(stale, ignore_errors=True)
    if directory.exists():
        directory.rename(stale)
    (building(directory) / "store").rename(directory)
    sync_directory(directory.parent)
    drop_leftovers(directory)


def leftovers(directory: Path) -> list[Path]:
    """What builds of the store leave behind if killed: the one under way, and the store that it was replacing."""
    return [path for path in (building(directory), _stale(directory)) if path.exists()]


def drop_leftovers(directory: Path) -> None:
    """Removes them. Hold the store's lock, and have the store whole in its place."""
    for path in leftovers(directory):
        shutil.rmtree(path, ignore_errors=True)


def refuse_foreign_directory(directory: Path) -> None:
    """Raises StorageError if the directory holds anything but the files of a store, which a build would replace."""
    if not directory.exists():
        return
    foreign = [path.name for path in directory.iterdir() if not _OWN_FILES.fullmatch(path.name)]
    if foreign:
        raise StorageError(
            f"{directory} holds files that are no part of a store ({', '.join(sorted(foreign)[:3])}) and is left as "
            "it is: remove it or choose another directory"
        )
