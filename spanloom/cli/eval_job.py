"""What `spanloom eval` does: models one after another, on the held-out parts of tasks one after another."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import numpy as np

from spanloom import __version__
from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.eval import Evaluating
from spanloom.cli.eval_subjects import Subject, load, mesh_here, subjects_of
from spanloom.cli.flags import Command
from spanloom.cli.line_job import compiled_programs_kept
from spanloom.cli.line_output import ALONE
from spanloom.cli.progress_bar import ProgressBar
from spanloom.cli.shares import share_named
from spanloom.cli.stages import resolved_runs
from spanloom.cli.terminal import width_and_colour
from spanloom.cli.train import output_directory
from spanloom.evaluation.judged import NothingHeldOutError, judged
from spanloom.evaluation.loaded import LoadedModel
from spanloom.evaluation.metrics.bootstrap import RESAMPLES
from spanloom.evaluation.options import RankingError
from spanloom.evaluation.published import beside_published, published_markdown
from spanloom.evaluation.records import HeldoutTask, Record
from spanloom.evaluation.records_file import RecordsFile
from spanloom.evaluation.result_rows import TASK, Row, as_csv, as_jsonl, as_markdown, with_averages
from spanloom.evaluation.results import key_of
from spanloom.evaluation.rows import BATCH
from spanloom.evaluation.task_metrics import MetricError
from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.durable import locked, write_file
from spanloom.pipeline.left_out import skipped
from spanloom.pipeline.order import spread
from spanloom.pipeline.share import BuildShare
from spanloom.settings.model import Model
from spanloom.settings.nearest import did_you_mean
from spanloom.settings.published import Published
from spanloom.settings.run import Run
from spanloom.settings.serialize import to_json
from spanloom.settings.stages import as_one
from spanloom.settings.task import Task, heldout_of
from spanloom.tasks.functions import described
from spanloom.tasks.prompts.names import data_set_and_template
from spanloom.training.progress import make_display
from spanloom.vocabularies.build import build
from spanloom.vocabularies.vocabulary import Vocabulary

_RESULTS = {"results.jsonl": as_jsonl, "results.csv": as_csv, "results.md": as_markdown}
_PUBLISHED = "published.md"
_LOCK = ".lock-{}-of-{}"  # it is left behind, and so tells whose results these are


def evaluate(command: Command[Evaluating], checkpoint: str) -> None:
    """Evaluate, show and keep what came out. Raises UsageError and CommandError for what cannot be done, each with its
    fix, and what reading checkpoints and data raises.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    asked, directory = command.options, output_directory(command)
    share = ALONE if asked.shard is None else share_named(asked.shard)
    subjects = subjects_of(Path(checkpoint), asked.checkpoints)
    run = as_one(resolved_runs(command))
    tasks = tasks_asked_for(run, asked.tasks)
    folder = Path(asked.results) if asked.results else directory / "eval"
    _refuse_foreign(folder)
    if asked.whole:  # apart from the stores that a run learns from
        directory, tasks = directory / "whole", list(map(_whole, tasks))
    model, vocabulary = _model_settings(run, directory, subjects[0])
    run = replace(run, model=model)
    size = command.run.eval.batch_size or BATCH  # that of a training batch, which it is unless set, is for many devices
    parts = _heldout_tasks(run, tasks, directory, vocabulary, asked, size)
    with _alone(folder, share), compiled_programs_kept():
        loading = functools.partial(load, mesh=mesh_here(run.mesh))
        outcomes = list(_outcomes(subjects, parts, folder, share, asked, loading))
    if None in outcomes:
        print(f"{folder}: job {share} is done; other jobs are not yet", file=sys.stderr)
        return
    _tell([one for one in outcomes if isinstance(one, Row)], folder, command.recipe.published)
    if failed := [one for one in outcomes if isinstance(one, str)]:
        raise CommandError("\n".join(failed))


def _tell(rows: Sequence[Row], folder: Path, published: Published | None) -> None:
    """Keeps and shows the rows of tasks, what they are together, and what others published beside them."""
    if not rows:
        return
    rows = with_averages(rows)
    for name, written in _RESULTS.items():
        _write(folder / name, written(rows))
    table = beside_published(rows, published) if published else []
    _show(rows, table)
    if published and table:
        _write(folder / _PUBLISHED, published_markdown(table, published))
        print(f"published figures, and who reports them: {folder / _PUBLISHED}")
    print(f"\nwrote {folder}/results.jsonl, .csv and .md; predictions are beside them")


def _refuse_foreign(folder: Path) -> None:
    """Raises CommandError where results lie that no evaluation wrote."""
    there = [name for name in _RESULTS if (folder / name).exists()]
    if there and not any(folder.glob(_LOCK.format("*", "*"))):
        raise CommandError(f"{folder / there[0]} is none that spanloom eval wrote; it stays: name another --results")


def tasks_asked_for(run: Run, names: Sequence[str]) -> list[Task]:
    """The run's tasks, and those it watches, that are called so. Raises UsageError for a name that none has."""
    known = {task.name: task for task in (*run.tasks, *run.eval.also)}
    chosen = dict.fromkeys(known) if not names else dict[str, None]()
    for name in names:
        found = [one for one in known if fnmatchcase(one, name)]
        if not found:
            raise UsageError(f"--tasks {name}: the recipe has no such task{did_you_mean(name, known)}")
        chosen |= dict.fromkeys(found)
    return [task for name, task in known.items() if name in chosen]


def _whole(task: Task) -> Task:
    """The task with all rows of its files held out, unless other files are."""
    source: Any = task.source
    files = getattr(source, "files", ())
    return replace(task, source=replace(source, heldout_files=files)) if files and not heldout_of(source) else task


def _model_settings(run: Run, directory: Path, subject: Subject) -> tuple[Model, Vocabulary]:
    """The checkpoint's model, and the recipe's vocabulary. Raises CommandError where that is not the checkpoint's."""
    from spanloom.cli.cache import vocabulary_learnt
    from spanloom.recipes._start import model_and_vocabulary

    model, settings = model_and_vocabulary(str(subject.path))
    try:
        own = vocabulary_learnt(run, directory) or build(run.vocabulary)
    except CommandError as error:
        raise CommandError(f"{error}\nTo evaluate on other data than that run's, name another --out") from error
    if own.fingerprint() != build(settings).fingerprint():
        raise CommandError(
            f"the recipe's vocabulary, {run.vocabulary}, is not that of {subject.path}, {settings}: the model would "
            "read other text than is meant. Give the recipe the checkpoint's (--task.vocabulary, --vocabulary or "
            "--start, as the recipe has it)"
        )
    return model, own


def _heldout_tasks(
    run: Run, tasks: Sequence[Task], directory: Path, vocabulary: Vocabulary, asked: Evaluating, size: int
) -> dict[str, HeldoutTask]:
    """The tasks with their held-out parts, which are built where they are missing."""
    from spanloom.pipeline.build_workers import default_workers
    from spanloom.pipeline.watched import open_heldout

    display, empty = make_display(sys.stderr), dict[str, str]()
    try:
        parts = open_heldout(
            run,
            tasks,
            directory,
            vocabulary,
            progress=display.building,
            workers=default_workers(),
            warn=display.warn,
            alone=True,
            tell_empty=empty.__setitem__,
        )
    finally:
        display.close()
    _refuse_without([task.name for task in tasks if task.name not in parts], asked.tasks, empty, some=bool(parts))
    known = [task for task in tasks if task.name in parts]
    _tell_skipped(known, parts)
    return {task.name: HeldoutTask(task, parts[task.name], vocabulary, asked.decode, size) for task in known}


def _tell_skipped(tasks: Sequence[Task], parts: Mapping[str, Dataset]) -> None:
    """Says which rows are not among the examples: what is measured is measured without them."""
    for task in tasks:
        if told := skipped(task, parts[task.name].store.report):
            print(f"data: held-out part of {task.name}: skipped: {told}", file=sys.stderr)


def _refuse_without(lacking: Sequence[str], named: Sequence[str], empty: Mapping[str, str], *, some: bool) -> None:
    """Raises CommandError for tasks that were named and hold nothing out, or if none does; says whom it passes over.

    `empty`: why some hold nothing out though rows were read, by task.
    """
    if not lacking:
        return
    if not some or any(name in named for name in lacking):
        others = ", ".join(name for name in lacking if name not in empty)
        advice = (
            f"nothing is held out of {others}: give the source held-out files or a split of them (heldout_files, "
            "heldout_split), or keep a share out of training (heldout_share)"
        )
        raise CommandError("\n".join([*empty.values(), *([advice] if others else [])]))
    for why in empty.values():
        print(why, file=sys.stderr)
    print(f"passed over, as nothing is held out: {', '.join(lacking)}", file=sys.stderr)


def _outcomes(
    subjects: Sequence[Subject],
    parts: Mapping[str, HeldoutTask],
    folder: Path,
    share: BuildShare,
    asked: Evaluating,
    load: Callable[[Subject], LoadedModel],
) -> Iterator[Row | str | None]:
    """For each model and task its row, why there is none, or None while other jobs are not done."""
    numbers = {name: _numbers(part, asked.max_examples) for name, part in parts.items()}
    total = len(subjects) * sum(len(some[share.index :: share.of]) for some in numbers.values())
    with ProgressBar("examples", total) as progress:
        for subject in subjects:
            model = functools.cache(functools.partial(load, subject))
            for name, part in parts.items():
                path = folder / subject.name / f"{quote(name, safe=' ')}.jsonl"
                file = RecordsFile(path, _key(subject, part, numbers[name]), numbers[name])
                try:
                    records = _records(file, part, model, share, progress)
                    yield None if records is None else _row(subject, part, records, asked)
                except (RankingError, MetricError, NothingHeldOutError) as error:
                    text = str(error) if repr(name) in str(error) else f"task {name!r}: {error}"
                    yield f"{subject.name}: {text}"


def _records(
    file: RecordsFile,
    part: HeldoutTask,
    model: Callable[[], LoadedModel],
    share: BuildShare,
    progress: ProgressBar,
) -> list[Record] | None:
    """All records of a task, those of this job made if they are not there; None while other jobs are not done."""
    numbers = file.numbers[share.index :: share.of]
    if (found := file.read()) is not None or file.has(share):
        progress.advance(len(numbers))
    else:
        made: list[Record] = []
        for block in part.records(model(), numbers):
            made += block
            progress.advance(len(block))
        file.write(made, share)
    return found or file.together(share.of)


def _row(subject: Subject, part: HeldoutTask, records: Sequence[Record], asked: Evaluating) -> Row:
    resamples = RESAMPLES if asked.bootstrap else 0
    task = part.task
    said = judged(task, part.heldout, records, normalised=asked.length_normalised, resamples=resamples)
    for note in said.notes:
        print(f"{task.name}: {note}", file=sys.stderr)
    return Row(subject.name, TASK, *data_set_and_template(task), task.name, said.examples, said.numbers)


def _numbers(part: HeldoutTask, most: int) -> Sequence[int]:
    """All examples, or `most` (unless 0), spread over the part as in training; where rows are one option each, all
    options of about as many.
    """
    count = part.heldout.num_examples
    if not 0 < most < count:
        return range(count)
    return sorted(part.with_all_options(spread(np.arange(most), most, count).tolist()))


def _key(subject: Subject, part: HeldoutTask, numbers: Sequence[int]) -> str:
    """What decides records: the checkpoint, the data, how they are read, and whether the model writes."""
    task, heldout = part.task, part.heldout
    return key_of(
        checkpoint=subject.fingerprint,
        data=heldout.content,
        vocabulary=part.vocabulary.fingerprint(),
        settings=[to_json(task.objective), *map(to_json, task.features)],
        lengths=[heldout.inputs_length, heldout.targets_length],
        code=[described(function) for function in task.preprocessors],
        decodes=part.decodes,
        examples=numbers.stop if isinstance(numbers, range) else [*numbers],
        version=__version__,
    )


@contextlib.contextmanager
def _alone(folder: Path, share: BuildShare) -> Iterator[None]:
    """Inside, no other process does the same share. Raises CommandError where one does."""

    def refuse() -> NoReturn:
        raise CommandError(f"{folder}: another process evaluates there: let it end, or name another --results")

    with locked(folder / _LOCK.format(share.index, share.of), refuse):
        yield


def _write(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(text.encode()), shared=True)


def _show(rows: Sequence[Row], beside: Sequence[Sequence[str]]) -> None:
    from spanloom.report.evaluation import beside_text, evaluation_text

    width, colour = width_and_colour(sys.stdout)
    sys.stdout.write(evaluation_text(rows, width=width, colour=colour))
    if beside:
        sys.stdout.write("\n" + beside_text(beside, width=width, colour=colour))
