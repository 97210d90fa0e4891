"""A command that answers line after line with a model: reading, progress, bad lines, and where answers go."""

import contextlib
import hashlib
import io
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.line_output import ALONE, LINE, LineOutput, Record, as_line, skip_answered
from spanloom.cli.progress_bar import ProgressBar
from spanloom.cli.shares import share_named
from spanloom.pipeline.share import BuildShare
from spanloom.settings.mesh import Mesh

if TYPE_CHECKING:
    from spanloom.evaluation.line_requests import Lines
    from spanloom.evaluation.loaded import LoadedModel
    from spanloom.settings.run import Run

BLOCK = 256
"""Lines that are read before any is answered, so that those of like lengths are computed together."""
ERROR = "error"
"""Field of the answer to a line that has none."""

STDOUT_CLOSED = "standard output is closed, so the result would be lost: name an --output, or leave it open"

Read = Callable[[int, str], tuple[Record, Any]]
"""A line's record, and what is asked with it; raises BadLineError."""
Answer = Callable[[Sequence[Any]], Sequence[Record]]
"""What each answer adds to its record: the fields that `Job.adds` names."""


@dataclass(frozen=True)
class Job:
    """What the user asked for."""

    input: str | Sequence[str] | None
    """File of lines, or lines themselves; None or -: standard input."""
    output: str | None
    """File of answers; None or -: standard output."""
    errors: Literal["stop", "keep"]
    """Whether a bad line stops the command, or is answered with why."""
    share: BuildShare = ALONE
    """Of several jobs."""
    field: str = "inputs"
    """Field of the input."""
    adds: tuple[str, ...] = ("outputs",)
    """Fields of what is answered."""

    def __post_init__(self) -> None:
        if self.field in self.own_fields:
            raise UsageError(f"--field {self.field}: answers have a field of that name; rename that of the lines")
        if self.output in (None, "-") and sys.__stdout__ is None:
            raise CommandError(STDOUT_CLOSED)
        if self.input in (None, "-") and sys.__stdin__ is None:
            raise CommandError("standard input is closed: give --input FILE")

    @property
    def own_fields(self) -> tuple[str, ...]:
        """Fields of an answer that are none of its line, which lose theirs of that name: it may be such an answer."""
        return LINE, ERROR, *self.adds

    def kept(self, record: Record) -> Record:
        """What an answer keeps of a line."""
        return {name: value for name, value in record.items() if name not in self.own_fields}


def share_from(text: str | None, output: str | None) -> BuildShare:
    """The share that --shard names. Raises UsageError."""
    if text is None:
        return ALONE
    if output in (None, "-"):
        raise UsageError("--shard: jobs that share the lines need an --output that all of them see")
    return share_named(text)


def run(job: Job, made_by: Record, read: Read, answer: Answer) -> None:
    """Answer every line. Raises CommandError for what cannot be read, written or gone on with, naming the line."""
    with open_lines(job.input) as (lines, total):
        numbered = _numbered(lines)
        if job.output in (None, "-"):
            as_utf8(sys.stdout)
            errors = _Errors(job)
            for block in errors.among(_answers(numbered, job, read, answer, ProgressBar("lines", total, 0))):
                sys.stdout.write(b"".join(map(as_line, block)).decode())
                sys.stdout.flush()
            if errors.count:
                print(errors.describe(), file=sys.stderr)
            return
        output = LineOutput(Path(job.output), job.share)
        with output.alone():
            done, errors = output.begin(made_by), _Errors(job)
            errors.count_before(done, output.path)
            counted = _Counted(numbered)
            mine = (one for one in counted if output.owns(one[0]))
            skip_answered(mine, done, lambda record, line: _same(record, line, job), output.path)
            progress = ProgressBar("lines", _share(total, job.share), len(done))
            output.append(errors.among(_answers(mine, job, read, answer, progress)))
            answered = errors.describe() or "all answered"
            if output.finish(counted.number, counted.digest, made_by):
                print(f"{output.whole}: {counted.number:,} lines, {answered}", file=sys.stderr)
            else:
                print(f"{output.path}: done, {answered}; other jobs are not yet", file=sys.stderr)


@contextlib.contextmanager
def open_lines(source: str | Sequence[str] | None) -> Iterator[tuple[Iterable[str], int | None]]:
    """Lines of a file, of standard input or given as they are, and how many there are, where that can be known."""
    if source is not None and not isinstance(source, str):
        yield source, len(source)
        return
    if source in (None, "-"):
        as_utf8(sys.stdin, errors="surrogateescape", newline="\n")
        yield sys.stdin, None
        return
    assert source is not None
    total = None
    if Path(source).is_file():
        with open(source, "rb") as file:
            total = sum(1 for _ in file)
    with open(
        source, encoding="utf-8", errors="surrogateescape", newline="\n"
    ) as text:  # bad bytes are met line by line
        yield text, total


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(without_mark(lines), 1):
        yield number, line.removesuffix("\n").removesuffix("\r")


def without_mark(lines: Iterable[str]) -> Iterator[str]:
    """The lines without the byte order mark that some editors begin a file with: what follows may be JSON."""
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


class _Counted:
    """Lines, with the number of the last one that was read, and a hash of all until then."""

    def __init__(self, numbered: Iterator[tuple[int, str]]) -> None:
        self._numbered, self.number, self._hash = numbered, 0, hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, line in self._numbered:
            self.number = number
            self._hash.update(line.encode("utf-8", "surrogateescape") + b"\n")
            yield number, line

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256."""
        return self._hash.hexdigest()


class _Errors:
    """Lines that have why there is no answer in place of one: how many, and the first."""

    def __init__(self, job: Job) -> None:
        self._job, self.count, self._first = job, 0, ""

    def among(self, blocks: Iterable[list[Record]]) -> Iterator[list[Record]]:
        """The blocks as they are, with their lines counted."""
        for block in blocks:
            self._add(block)
            yield block

    def count_before(self, done: Sequence[Record], output: Path) -> None:
        """Count those of an earlier command. Raises CommandError where a bad line is to stop this one."""
        self._add(done)
        if self.count and self._job.errors == "stop":
            raise CommandError(
                f"{output}: there are answers, {self.describe()}. --errors keep goes on; or name another --output"
            )

    def describe(self) -> str:
        """In words; empty if there are none."""
        have = "has" if self.count == 1 else "have"
        return f"of which {self.count:,} {have} no answer: {self._first}" if self.count else ""

    def _add(self, records: Iterable[Record]) -> None:
        for record in records:
            if ERROR in record:
                self._first = self._first or f"line {record[LINE]}: {record[ERROR]}"
                self.count += 1


def _answers(
    numbered: Iterator[tuple[int, str]], job: Job, read: Read, answer: Answer, progress: ProgressBar
) -> Iterator[list[Record]]:
    """Blocks of answers. A bad line ends the last of them, after those before it, where it is to stop the command."""
    with progress:
        while block := list(itertools.islice(numbered, BLOCK)):
            records: list[Record] = []
            asked: list[tuple[int, Any]] = []
            bad = None
            for number, line in block:
                try:
                    record, question = read(number, line)
                    asked.append((len(records), question))
                    records.append({LINE: number, **job.kept(record)})
                except ValueError as error:
                    if job.errors == "stop":
                        bad = CommandError(
                            f"line {number}: {error}. --errors keep goes on, and says so in the line's place"
                        )
                        break
                    records.append({LINE: number, job.field: _shown(line), ERROR: str(error)})
            if asked:
                found = answer([question for _, question in asked])
                for (place, _), one in zip(asked, found, strict=True):
                    records[place] |= one
            yield records
            progress.advance(len(records))
            if bad is not None:
                raise bad


def _same(record: Record, line: str, job: Job) -> bool:
    """Whether an answer is to this line, with all that it asks."""
    from spanloom.evaluation.line_requests import BadLineError, record_of

    if ERROR in record:
        return record.get(job.field) == _shown(line)
    try:
        wanted = job.kept(record_of(line, job.field))
    except BadLineError:
        return False
    return as_line(job.kept(record)) == as_line(wanted)  # as it is written: NaN is not itself


def _shown(line: str) -> str:
    """A line as it can be written, bad bytes as U+FFFD."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _share(total: int | None, share: BuildShare) -> int | None:
    return None if total is None else len(range(share.index, total, share.of))


def as_utf8(stream: Any, errors: str = "strict", newline: str | None = None) -> None:
    """Lines and JSON are UTF-8, whatever the locale says."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors=errors, newline=newline)


@contextlib.contextmanager
def compiled_programs_kept() -> Iterator[None]:
    """Inside, compiled programs are read from the cache and written to it."""
    from spanloom.training.compile_cache import enable_compile_cache, seal_entries

    directory = enable_compile_cache()
    try:
        yield
    finally:
        if directory is not None:
            seal_entries(directory)


@dataclass(frozen=True)
class Source:
    """The model of a checkpoint."""

    model: "LoadedModel"
    """On all devices of this process."""
    made_by: Record
    """What tells it from others."""
    inputs_eos: bool
    """Whether its last task's inputs end with an end of sequence."""
    most_tokens: int | None
    """The longest input that memory takes; None: nobody knows."""
    run: "Run | None" = None
    """The run that trained it, where that is known."""

    def lines(self, field: str, inputs_eos: Literal["auto", "true", "false"]) -> "Lines":
        """How the lines are read of which this model is asked."""
        from spanloom.evaluation.line_requests import Lines

        return Lines(field, self.inputs_eos if inputs_eos == "auto" else inputs_eos == "true", self.most_tokens)


def load(checkpoint: str, which: str, mesh: Mesh) -> Source:
    """The model of a checkpoint, divided among all devices as `mesh` says."""
    import jax

    from spanloom.evaluation.line_requests import most_tokens
    from spanloom.evaluation.loaded import LoadedModel
    from spanloom.training.fits import available_memory
    from spanloom.training.read_model import read_model

    source = read_model(Path(checkpoint), which)
    available = available_memory(jax.devices()[0])
    run = source.lineage.run
    features = {} if run is None else {feature.name: feature for feature in run.tasks[-1].features}
    return Source(
        LoadedModel(source, mesh, available),
        {"model": source.lineage.origin, "fingerprint": source.fingerprint()},
        features["inputs"].add_eos if "inputs" in features else True,
        most_tokens(source.model, available),
        run,
    )
