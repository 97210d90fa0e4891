"""Records of one task and one model on disk: whole or absent, made by one job or by several, each its share.

FILE holds the records, a line of JSON each, and FILE.by.json what decides them and what the file's bytes are: neither
says anything without the other, so that a job that was killed leaves nothing that passes for whole. Of several jobs,
job I of N writes FILE.I-of-N; who finds all of these there puts them together.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from spanloom.evaluation.records import Record
from spanloom.pipeline.durable import locked, write_file
from spanloom.pipeline.share import BuildShare


class RecordsError(ValueError):
    """Records of several jobs that do not make a whole; the message says which to make again."""


@dataclass(frozen=True)
class RecordsFile:
    """Where records are kept."""

    path: Path
    """The file of all of them."""
    key: str
    """A hash of all that decides them."""
    numbers: Sequence[int]
    """Of the examples that are to be there, ascending."""

    def read(self) -> list[Record] | None:
        """The records, if they were made of the very same; None where they were not, or are damaged."""
        return _read(self.path, self.key)

    def write(self, records: Sequence[Record], share: BuildShare) -> None:
        """Keep a job's share. Raises StorageError on a full disk."""
        _write(self._part(share), self.key, records)

    def has(self, share: BuildShare) -> bool:
        """Whether a job's share is there."""
        return _read(self._part(share), self.key) is not None

    def together(self, jobs: int) -> list[Record] | None:
        """All records once each of so many jobs has written its share, put into one file; None until then.

        Raises RecordsError for examples that are there twice or not at all.
        """
        if (found := self.read()) is not None or jobs == 1:
            return found
        parts = [self._part(BuildShare(index, jobs)) for index in range(jobs)]
        with locked(self.path.with_name(self.path.name + ".lock"), lambda: None):
            if (found := self.read()) is not None:
                return found
            shares = [_read(part, self.key) for part in parts]
            records = sorted(chain.from_iterable(filter(None, shares)), key=lambda record: record["example"])
            if None in shares:
                return None
            self._check(records)
            _write(self.path, self.key, records)
            for part in parts:
                _remove(part)
        return records

    def _part(self, share: BuildShare) -> Path:
        if share.of == 1:
            return self.path
        return self.path.with_name(f"{self.path.name}.{share.index}-of-{share.of}")

    def _check(self, records: Sequence[Record]) -> None:
        numbers = [record["example"] for record in records]
        if numbers != list(self.numbers):
            twice = next((one for one, after in pairwise(numbers) if one == after), None)
            what = (
                f"example {twice} is there twice"
                if twice is not None
                else f"of {len(self.numbers):,} {len(numbers):,} are there"
            )
            raise RecordsError(f"{self.path}: {what}: delete {self.path}.*-of-* and give the jobs' commands again")


def _write(path: Path, key: str, records: Iterable[Record]) -> None:
    content = b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)
    note = {"key": key, "sha256": hashlib.sha256(content).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda file: file.write(content), shared=True)
    write_file(_note(path), lambda file: file.write(json.dumps(note).encode()), shared=True)


def _read(path: Path, key: str) -> list[Record] | None:
    try:
        note, content = json.loads(_note(path).read_bytes()), path.read_bytes()
        if note["key"] != key or note["sha256"] != hashlib.sha256(content).hexdigest():
            return None
        return list(_lines(content))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _lines(content: bytes) -> Iterator[Record]:
    for line in content.split(b"\n")[:-1]:
        yield dict(json.loads(line))


def _note(path: Path) -> Path:
    return path.with_name(path.name + ".by.json")


def _remove(path: Path) -> None:
    for one in (_note(path), path):
        with contextlib.suppress(FileNotFoundError):
            one.unlink()
