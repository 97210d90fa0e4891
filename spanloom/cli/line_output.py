"""The output of a command that answers line after line: a killed command goes on, no line comes twice, none is lost.

Beside OUTPUT stands OUTPUT.by.json, which says what makes it. Of several jobs, job I of N writes OUTPUT.I-of-N, and the
one that is done last puts them together.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.cli.errors import CommandError
from spanloom.pipeline.durable import explain_full_disk, json_object, locked, write_file
from spanloom.pipeline.share import BuildShare

ALONE = BuildShare(0, 1)
LINE = "line"
"""Field of every record: the number of the line that it answers."""
Record = dict[str, Any]


@dataclass(frozen=True)
class LineOutput:
    """Where answers go."""

    whole: Path
    """The file of all answers."""
    share: BuildShare = ALONE
    """The job that this process is; it answers every N-th line."""

    @property
    def path(self) -> Path:
        """The file that this job writes."""
        return part_of(self.whole, self.share) if self.share.of > 1 else self.whole

    def owns(self, number: int) -> bool:
        """Whether this job answers line `number`, counted from 1."""
        return (number - 1) % self.share.of == self.share.index

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside, no other process writes the same file. Raises CommandError where one does, or nothing can."""
        if self.whole.exists() and not self.whole.is_file():
            raise CommandError(
                f"{self.whole}: is a folder, a device or a pipe, and only a file can be gone on with: name another "
                "--output, or none for standard output"
            )
        if not (folder := self.path.parent).is_dir():
            raise CommandError(f"{self.path}: there is no folder {folder}; make it, or name another --output")

        def refuse() -> None:
            raise CommandError(f"{self.path} is being written by another process: let it end, or name another --output")

        with locked(_beside(self.path, ".lock"), refuse):
            yield

    def begin(self, made_by: Record) -> list[Record]:
        """The answers that are there already; half a last line, left by a kill, is cut off.

        Raises CommandError for a file that no such command wrote, or another model or other settings did: it stays.
        """
        for path in (self.path, self.whole):
            if _has_content(path):
                _same_maker(path, made_by)
        _beside(self.path, ".done").unlink(missing_ok=True)
        if not _has_content(self.path):
            _note(self.path, made_by)
            return []
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        records = [self._answer(number, line) for number, line in enumerate(whole.split(b"\n")[:-1], 1)]
        if len(whole) < len(content):
            if not content[len(whole) :].startswith(b"{"):
                raise self._foreign(len(records) + 1)
            os.truncate(self.path, len(whole))
        return records

    def append(self, records: Iterable[Sequence[Record]]) -> None:
        """Write blocks of answers, each at once and to the disk."""
        with explain_full_disk(self.path), self.path.open("ab") as file:
            for block in records:
                file.write(b"".join(as_line(record) for record in block))
                file.flush()
                os.fsync(file.fileno())

    def finish(self, lines: int, digest: str, made_by: Record) -> bool:
        """Note that this job has answered all of its share of so many lines, whose hash is `digest`; whether the whole
        output is there.

        Of several jobs the last one puts the parts together, in the order of the lines. Raises CommandError for parts
        that do not go together.
        """
        if self.share.of == 1:
            return True
        write_file(_beside(self.path, ".done"), lambda file: file.write(f"{lines} {digest}".encode()))
        parts = [part_of(self.whole, BuildShare(index, self.share.of)) for index in range(self.share.of)]
        with locked(_beside(self.whole, ".lock"), lambda: None):
            inputs = {_input_of(_beside(part, ".done")) for part in parts}
            if None in inputs:
                return False
            if len(inputs) > 1:
                counts = sorted({count for count, _ in filter(None, inputs)})
                found = f"inputs of {' and '.join(f'{count:,}' for count in counts)} lines"
                raise CommandError(
                    f"the jobs that write {self.whole} were given {found if len(counts) > 1 else 'other lines each'}: "
                    "give their commands again, all with the same --input"
                )
            for part in parts:
                _same_maker(part, made_by)
            _note(self.whole, made_by)
            write_file(self.whole, lambda file: file.writelines(_merged(parts, lines)))
        return True

    def _answer(self, number: int, line: bytes) -> Record:
        record = json_object(line)
        if record is None or not isinstance(record.get(LINE), int):
            raise self._foreign(number)
        return record

    def _foreign(self, number: int) -> CommandError:
        return CommandError(
            f"{self.path}: line {number} is none that this command wrote; the file stays as it is: name another "
            "--output"
        )


def part_of(whole: Path, job: BuildShare) -> Path:
    """The file that one of several jobs writes."""
    return whole.with_name(f"{whole.name}.{job.index}-of-{job.of}")


def as_line(record: Record) -> bytes:
    """A record as a line of JSON in UTF-8."""
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def skip_answered(
    numbered: Iterator[tuple[int, str]], done: Sequence[Record], same: Callable[[Record, str], bool], output: Path
) -> None:
    """Pass over the lines that were answered before. Raises CommandError where the answers are to other lines."""
    for record in done:
        number, line = next(numbered, (None, ""))
        if number != record[LINE] or not same(record, line):
            there = "ends before that" if number is None else "has another line there"
            raise CommandError(
                f"{output}: holds an answer to line {record[LINE]}, but the input {there}: name another --output"
            )
    if done:
        print(f"{output}: {len(done):,} lines were there already", file=sys.stderr)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _input_of(path: Path) -> tuple[int, str] | None:
    """How many lines a job was given, and their hash; None where it is not done."""
    try:
        count, digest = path.read_text().split()
        return int(count), digest
    except (OSError, ValueError):
        return None


def _merged(parts: Sequence[Path], lines: int) -> Iterator[bytes]:
    """The lines of the parts, by turns."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(part.open("rb")) for part in parts]
        for place in range(lines):
            line = files[place % len(files)].readline()
            record = json_object(line)
            if record is None or record.get(LINE) != place + 1:
                name = files[place % len(files)].name
                raise CommandError(
                    f"{name}: has no answer to line {place + 1}; delete it and {name}.done, and give that job's "
                    "command again"
                )
            yield line


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _note(path: Path, made_by: Record) -> None:
    """Say beside a file what makes it."""
    content = json.dumps(made_by, indent=1, ensure_ascii=False).encode()
    write_file(_beside(path, ".by.json"), lambda file: file.write(content))


def _same_maker(path: Path, made_by: Record) -> None:
    """Raises CommandError where another model, other settings or another command made what a file holds."""
    note, other = _beside(path, ".by.json"), "name another --output"
    try:
        before = json_object(note.read_bytes())
    except OSError:
        before = None
    if before is None:
        raise CommandError(f"{path} holds lines, but {note} does not say what made them: {other} to begin anew")
    if before.keys() != made_by.keys():
        raise CommandError(f"{path} was begun by another command: {other}")
    for name, value in made_by.items():
        if name != "model" and before[name] != value:
            name = "model" if name == "fingerprint" else name
            raise CommandError(
                f"{path} was begun with {name} {before[name]}, and this is {made_by[name]}: go on with that, or {other}"
            )
