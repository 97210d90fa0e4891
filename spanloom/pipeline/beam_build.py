"""Stores built by Apache Beam, on any of its runners: the very same as one process makes.

One element for each task is read into its groups, one for each shard, which Beam spreads over its workers; they make
the shards where every build of ours does (`spanloom.pipeline.publish`), so that they must see that directory, and the
text, under the same paths as the process that launches. That holds the locks meanwhile, and publishes at the end. Beam
may do anything twice, and at once: a shard is whole or absent, and always the same. Between reading and making lies a
shuffle of the text, which runners on clusters keep on disk and Beam's direct runner in memory.
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions

from spanloom.pipeline.build import (
    SHARD_BYTES,
    PartPass,
    StoreToBuild,
    is_prepared,
    makers_of,
    prepare,
    publish_part,
)
from spanloom.pipeline.durable import locked, write_file
from spanloom.pipeline.fingerprint import make_probes
from spanloom.pipeline.groups import Group, groups_of
from spanloom.pipeline.publish import building, drop_leftovers, lock_of
from spanloom.pipeline.shard_maker import Count, ShardMaker
from spanloom.pipeline.store import Warn, look, source_now, stores_to_build, usable, wanted_stores
from spanloom.settings.nearest import nearest
from spanloom.settings.task import Task
from spanloom.tasks.heldout import Split
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.task_rows import read_task
from spanloom.vocabularies.vocabulary import Vocabulary

_AT_ONCE = 200  # tasks, each with a lock or two: processes may have a thousand files open
_READ = "read.json"
_FAILED = "failed.json"

Places = Mapping[Split, Path]


class BeamBuildError(RuntimeError):
    """What failed on one of Beam's workers, or in Beam itself."""


class BeamOptionError(ValueError):
    """An option that Beam does not have."""


def check_options(words: Sequence[str], warn: Warn) -> None:
    """Raises BeamOptionError for a word that is no option of Beam's, but is like one; warns of others.

    Runners on a cluster may have options that Beam knows nothing of here.
    """
    if words and not words[0].startswith("--"):
        raise BeamOptionError(f"{words[0]!r}: options of Beam begin with --")
    options = PipelineOptions(list(words))
    known = options.get_all_options()
    for name in options.get_all_options(retain_unknown_options=True):
        if name not in known:
            if close := nearest(name, known, count=1):
                raise BeamOptionError(f"Beam has no option --{name}; did you mean --{close[0]}?")
            warn(f"Beam knows no option --{name} here: it is left to the runner")


def build_with_beam(
    tasks: Iterable[tuple[Task, Places]],
    vocabulary: Vocabulary,
    words: Sequence[str],
    *,
    shard_bytes: int = SHARD_BYTES,
    warn: Warn,
) -> dict[str, Exception | None]:
    """Builds and publishes the stores of tasks that are missing; by name of the task None, or why there are none.

    `words` are options of Beam, such as "--runner". Of stores that are there every byte is checked. Tasks that have
    theirs are not named. Raises StorageError on a file system without locks.
    """
    outcomes: dict[str, Exception | None] = {}
    remaining = iter(tasks)
    while some := list(itertools.islice(remaining, _AT_ONCE)):
        outcomes |= _build_some(some, vocabulary, words, shard_bytes, warn)
    return outcomes


@dataclass(frozen=True)
class _Job:
    """What is missing of one task. It travels to Beam's workers."""

    task: Task
    parts: tuple[StoreToBuild, ...]
    makers: Mapping[Split, ShardMaker]
    shard_bytes: int

    @property
    def notes(self) -> Path:
        """Where workers leave word for the process that launched them."""
        return building(self.parts[0].directory) / "beam"

    def note(self, name: str, data: Any) -> None:
        """Leaves word."""
        self.notes.mkdir(exist_ok=True)
        write_file(self.notes / name, lambda file: file.write(json.dumps(data).encode()), shared=True)

    def word(self, name: str) -> Any:
        """The word that was left; None if none was."""
        path = self.notes / name
        return json.loads(path.read_bytes()) if path.exists() else None


def _build_some(
    tasks: Sequence[tuple[Task, Places]], vocabulary: Vocabulary, words: Sequence[str], shard_bytes: int, warn: Warn
) -> dict[str, Exception | None]:
    outcomes: dict[str, Exception | None] = {}
    jobs: list[_Job] = []
    with contextlib.ExitStack() as stack:
        for task, places in tasks:
            for directory in places.values():
                stack.enter_context(locked(lock_of(directory), _waiting(directory, warn)))
            try:
                job = _job_of(task, places, vocabulary, shard_bytes, warn)
            except (BadInputError, OSError) as error:
                outcomes[task.name] = error
            else:
                jobs += [job] if job else []
        broken = _run(jobs, words) if jobs else None
        for job in jobs:
            outcomes[job.task.name] = _publish(job, broken)
    return outcomes


def _waiting(directory: Path, warn: Warn) -> Callable[[], object]:
    return lambda: warn(f"waiting for another process that builds {directory}")


def _job_of(task: Task, places: Places, vocabulary: Vocabulary, shard_bytes: int, warn: Warn) -> _Job | None:
    """What is missing of a task, made ready to be built; None where nothing is."""
    wanted, source = wanted_stores(task, places, vocabulary, shard_bytes), source_now(task)
    found = look(task, places, vocabulary, wanted, source, checksum=True)
    for split in usable(found, warn):
        drop_leftovers(places[split])
    parts = stores_to_build(places, wanted, found, source, {})
    if not parts:
        return None
    makers = makers_of(task, vocabulary, parts, shared=True)
    for part in parts:
        prepare(part, makers[part.split])
    job = _Job(task, tuple(parts), makers, shard_bytes)
    for name in (_READ, _FAILED):
        (job.notes / name).unlink(missing_ok=True)
    return job


def _run(jobs: Sequence[_Job], words: Sequence[str]) -> Exception | None:
    """Runs the pipeline; the error if that fails."""
    try:
        with beam.Pipeline(options=PipelineOptions(list(words))) as pipeline:
            (
                pipeline
                | "tasks" >> beam.Create(range(len(jobs)))
                | "spread tasks" >> beam.Reshuffle()
                | "read" >> beam.ParDo(_Read(jobs))
                | "spread shards" >> beam.Reshuffle()
                | "make shards" >> beam.ParDo(_Make(jobs))
            )
    except Exception as error:  # whatever a runner raises
        return error
    return None


class _Read(beam.DoFn):
    """From the number of a task to its groups."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._jobs = jobs

    def process(self, number: int) -> Iterator[tuple[int, Group]]:
        """Beam calls it for each task."""
        job = self._jobs[number]
        reports = {part.split: ReadReport() for part in job.parts}
        passed = {part.split: PartPass() for part in job.parts}
        try:
            for group in groups_of(read_task(job.task, reports), job.shard_bytes):
                one = passed[group.split]
                if group.number == 0:
                    one.probes = make_probes(job.task, job.makers[group.split].vocabulary, group.documents)
                one.others[group.number] = group.text_hash(), group.first
                yield number, group
        except OSError:
            raise  # a runner may try again
        except Exception as error:
            job.note(_FAILED, _described(error))
        else:
            job.note(_READ, {split: [asdict(passed[split]), report.to_dict()] for split, report in reports.items()})


class _Make(beam.DoFn):
    """Makes the shard of a group."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._jobs = jobs
        names = ("documents", "text_bytes", "tokens")
        self._counters = [Metrics.counter("spanloom", name) for name in names]

    def process(self, element: tuple[int, Group]) -> None:
        """Beam calls it for each group."""
        number, group = element
        job = self._jobs[number]
        part = next(part for part in job.parts if part.split == group.split)
        if not is_prepared(part):
            return  # the process that launched this has gone, and another builds something else in its place
        try:
            job.makers[group.split].make(group, self._count)
        except OSError:
            raise
        except Exception as error:
            job.note(_FAILED, _described(error))

    def _count(self, done: Count) -> None:
        for counter, count in zip(self._counters, (done.examples, done.text_bytes, done.tokens), strict=True):
            counter.inc(count)


def _described(error: Exception) -> str:
    """The error in words; the name of its class only where that is news."""
    is_ours = type(error).__module__.split(".")[0] == "spanloom"
    return str(error) if is_ours else f"{type(error).__name__}: {error}"


def _publish(job: _Job, broken: Exception | None) -> Exception | None:
    """Publishes what is whole; why it cannot, if so."""
    if (failure := job.word(_FAILED)) is not None:
        return BeamBuildError(failure)
    read = job.word(_READ)
    lacking = "the text was not read to its end"
    for part in job.parts if read is not None else ():
        data, report = read[part.split]
        others = {int(number): (text_hash, first) for number, (text_hash, first) in data["others"].items()}
        entries = PartPass(data["probes"], {}, others).entries(job.makers[part.split])
        if (count := entries.count(None)) == 0:
            told = replace(part, report=ReadReport.from_dict(report))
            publish_part(told, job.makers[part.split], [one for one in entries if one is not None], data["probes"])
            lacking = ""
        else:
            lacking = f"{count:,} of {len(entries):,} shards of the {part.split} part are not there"
            break
    if not lacking:
        return None
    why = f": {broken}" if broken else "; do Beam's workers see the directory under the same path?"
    return BeamBuildError(f"{lacking}{why}. The same command goes on with the shards that are whole")
