"""The files of a run directory, of this machine or of a bucket (s3://, gs://): only read, and none of them is run."""

import contextlib
from collections.abc import Iterator
from typing import Any

from spanloom.pipeline.durable import json_object
from spanloom.settings.run_layout import CHECKPOINTS, FACTS, PARTIAL, RUN_FILE, STAGES_FILE
from spanloom.tasks.file_system import exists, is_folder, list_folder, open_file, size_of
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.remote_files import forget, is_remote, refuse_secrets

MOST_BYTES = 64 * 2**20
"""What a file of settings or results may have; metrics.jsonl is read in blocks, however long it is."""
_BLOCK = 4 * 2**20
_LOOKED_AT = 200


class NoRunError(ValueError):
    """There is no run where one was named; the message says what is there."""


class RunFiles:
    """The files below one directory."""

    def __init__(self, place: str) -> None:
        """Raises BadInputError for an address with a password or a token in it."""
        refuse_secrets(place) if is_remote(place) else None
        self.place = place.rstrip("/") or place

    @property
    def name(self) -> str:
        """The last part of the place."""
        return self.place.replace("\\", "/").rsplit("/", 1)[-1]

    def below(self, name: str) -> "RunFiles":
        """Those of a folder in it."""
        return RunFiles(self.path(name))

    def path(self, name: str) -> str:
        """Where a file of this name is."""
        return f"{self.place}/{name}"

    def has(self, name: str) -> bool:
        """Whether there is a file or folder of this name."""
        return exists(self.path(name))

    def names(self, folder: str = "") -> list[str]:
        """What is in a folder, sorted; nothing where there is none."""
        with contextlib.suppress(OSError):
            place = self.path(folder) if folder else self.place
            return list_folder(place) if is_folder(place) else []
        return []

    def bytes_of(self, name: str) -> bytes | None:
        """All of a file; None where there is none. Raises BadInputError for one of more than MOST_BYTES."""
        try:
            size = self.size(name)
            if size is None:
                return None
            if size > MOST_BYTES:
                what = f"has {size:,} bytes, and a file of this name has {MOST_BYTES:,} at most"
                raise BadInputError(self.path(name), what, "It is none that a run wrote: move it away")
            return next(self.blocks(name, 0, MOST_BYTES), b"")
        except OSError:
            return None

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where there is none."""
        path = self.path(name)
        try:
            return None if is_folder(path) else size_of(path)
        except OSError:
            return None

    def blocks(self, name: str, start: int, size: int = _BLOCK) -> Iterator[bytes]:
        """A file from a byte on, block by block; nothing where it has no more, or is gone."""
        try:
            with open_file(self.path(name)) as file:
                file.seek(start)
                while block := file.read(size):
                    yield block
        except BadInputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise

    def object_of(self, name: str) -> dict[str, Any] | None:
        """The JSON object in a file; None where there is none, or what is there is no object."""
        content = self.bytes_of(name)
        return None if content is None else json_object(content)

    def objects_of(self, name: str) -> list[dict[str, Any]]:
        """The JSON objects of a file that has one a line, but for damaged lines."""
        return [one for one in map(json_object, (self.bytes_of(name) or b"").splitlines()) if one is not None]

    def refresh(self) -> None:
        """Drop what was remembered of a bucket's listings: files may have come since."""
        if is_remote(self.place):
            forget(self.place)

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is one checkpoint."""
        return self.has(FACTS) and not self.name.endswith(PARTIAL)

    @property
    def is_run(self) -> bool:
        """Whether this is a run directory, perhaps one that has not trained yet."""
        return self.has(RUN_FILE)

    @property
    def stages(self) -> list[dict[str, Any]] | None:
        """Settings of the stages, as data; None where this is no directory of stages."""
        whole = self.object_of(STAGES_FILE)
        stages = None if whole is None else whole.get("stages")
        return stages if isinstance(stages, list) and all(isinstance(one, dict) for one in stages) else None

    def checkpoint_steps(self) -> list[int]:
        """Steps of the checkpoints, ascending."""
        names = [name for name in self.names(CHECKPOINTS) if name.isdecimal() and str(int(name)) == name]
        return sorted(map(int, names))

    def last_facts(self) -> dict[str, Any] | None:
        """What the last checkpoint says of itself, as data; None where there is none."""
        for step in reversed(self.checkpoint_steps()):
            if (facts := self.object_of(f"{CHECKPOINTS}/{step}/{FACTS}")) is not None:
                return facts
        return None


def opened(place: str) -> RunFiles:
    """The files of a run directory, of a directory of stages or, of a checkpoint, of that.

    Raises NoRunError where there is none, and BadInputError where a bucket cannot be asked.
    """
    files = RunFiles(place)
    for suffix in (f"/{RUN_FILE}", f"/{STAGES_FILE}", f"/{CHECKPOINTS}"):
        if files.place.endswith(suffix):
            files = RunFiles(files.place.removesuffix(suffix))
    if files.is_run or files.has(STAGES_FILE) or files.is_checkpoint:
        return files
    if not is_folder(files.place):
        raise NoRunError(f"{place} is no directory: give the directory that a run writes (its --out)")
    names = files.names()[:_LOOKED_AT]
    inside = [name for name in names if any(files.has(f"{name}/{file}") for file in (RUN_FILE, STAGES_FILE))]
    more = f"; there are runs in it: {', '.join(inside[:5])}" if inside else ""
    raise NoRunError(f"{place} is no run directory, as it holds neither {RUN_FILE} nor {STAGES_FILE}{more}")
