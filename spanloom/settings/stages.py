"""Stages: runs that follow one another, as a recipe may return them (language after language). Pure settings.

OUT/stages.json      the runs, as they were asked for last
OUT/1-en, OUT/2-de   a run directory each, whose run goes on from the one before it
OUT/stores           the stores of all tasks, which the stages share
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from spanloom.settings.compare import changes
from spanloom.settings.follow import Follow
from spanloom.settings.mixture import Mixture, Weighted
from spanloom.settings.optimizer import Decaying, zero_from
from spanloom.settings.row_sources import is_stream
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import Task

_SAME_WEIGHTS = ("model.activations", "model.relative_position_max_distance", "model.norm_epsilon")
"""Settings that change what weights of the same shapes compute."""


def stage_directory(directory: Path, number: int, run: Run) -> Path:
    """The run directory of a stage, counted from 1."""
    return directory / f"{number}-{run.name}"


def stage_directories(runs: Sequence[Run], directory: Path) -> list[Path]:
    """Those of all stages."""
    return [stage_directory(directory, number, run) for number, run in enumerate(runs, 1)]


def linked(runs: Sequence[Run], directory: Path) -> tuple[Run, ...]:
    """The runs as stages in `directory`, not resolved: each begins where the one before it ends, is written into a
    directory of its own, and measures the held-out parts of all tasks.

    Where schedules go on from stage to stage and have no end of their own, it is that of the last of these stages.
    Raises SettingsError, naming the runs, where their settings contradict one another.
    """
    ended = _with_ends(runs)
    if problems := [*_problems(runs), *_end_problems(ended)]:
        raise SettingsError("\n".join(problems))
    runs = ended
    tasks = {task.name: task for run in runs for task in run.tasks}
    places, stages = stage_directories(runs, directory), []
    for number, run in enumerate(runs):
        learnt = {task.name for task in run.tasks}
        also = {task.name: task for task in run.eval.also} | tasks
        others = tuple(task for name, task in also.items() if name not in learnt)
        stages.append(
            replace(
                run,
                out=str(places[number]),
                start=str(places[number - 1]) if number else run.start,
                follow=run.follow if number or run.start else Follow(),
                eval=replace(run.eval, also=others),
                log=replace(run.log, copy_to=run.log.copy_to and f"{run.log.copy_to}/{places[number].name}"),
            )
        )
    return tuple(stages)


def as_one(runs: Sequence[Run]) -> Run:
    """One run with the tasks of all, for what is done to every task; a run alone as it is."""
    if len(runs) == 1:
        return runs[0]
    tasks = {task.name: task for run in runs for task in run.tasks}
    return replace(runs[0], task=Mixture("stages", tuple(map(Weighted, tasks.values()))))


def _with_ends(runs: Sequence[Run]) -> list[Run]:
    """The runs with the end of schedules that go on: after all steps that they share."""
    found = list(runs)
    for first, last in _chains(runs):
        total = sum(run.steps for run in runs[first:last])
        for number in range(first, last):
            schedule = found[number].schedule
            if last - first > 1 and isinstance(schedule, Decaying) and schedule.decay_steps is None:
                found[number] = replace(found[number], schedule=replace(schedule, decay_steps=total))
    return found


def _chains(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """Stages whose schedule is one, as (first, last + 1)."""
    begins = [n for n, run in enumerate(runs) if not n or run.follow.schedule == "restart"]
    yield from zip(begins, [*begins[1:], len(runs)], strict=True)


def _end_problems(runs: Sequence[Run]) -> Iterator[str]:
    """Schedules that go on and come to 0 before the steps that share them."""
    for first, last in _chains(runs):
        done = runs[first].steps
        for run in runs[first + 1 : last]:
            done, end = done + run.steps, zero_from(run.schedule)
            if end and done > end:
                yield (
                    f"stage {run.name!r} goes on with a schedule that is at 0 from schedule.decay_steps = {end} on, "
                    f"and ends after {done} steps of it: give {done}, a schedule.end_factor above 0, "
                    "or follow.schedule restart"
                )


def _problems(runs: Sequence[Run]) -> Iterator[str]:
    yield from _name_problems(runs)
    first = runs[0]
    for number, run in enumerate(runs, 1):
        if run.steps < 1:
            yield f"stage {number}, {run.name!r}, has {run.steps} steps: a stage has 1 or more (--stage.{number}.steps)"
    for number, run in enumerate(runs[1:], 2):
        if run.start is not None:
            yield (
                f"stage {number}, {run.name!r}, has a start of its own ({run.start}): a stage begins where the one "
                "before it ends; leave it out, or make a recipe of its own of it"
            )
        if run.tasks and first.tasks and run.vocabulary != first.vocabulary:
            yield (
                f"stages {first.name!r} and {run.name!r} have different vocabularies, and one model has one embedding: "
                "give all tasks the same (task.vocabulary)"
            )
        yield from _misfits(runs[number - 2], run)


def _name_problems(runs: Sequence[Run]) -> Iterator[str]:
    names = [run.name for run in runs]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        numbers = " and ".join(str(n) for n, other in enumerate(names, 1) if other == name)
        yield f"stages {numbers} are both named {name!r}: give each a name of its own (Run.name, --stage.N.name)"
    tasks: dict[str, tuple[Run, Task]] = {}
    for run in runs:
        for task in run.tasks:
            other, same = tasks.setdefault(task.name, (run, task))
            if same != task:
                yield (
                    f"stages {other.name!r} and {run.name!r} have different tasks of the same name, {task.name!r}: "
                    "stages share their stores and are compared by the names of their tasks, so give it another name"
                )
            elif other is not run and is_stream(task.source):
                yield (
                    f"stages {other.name!r} and {run.name!r} both learn the stream {task.name!r}, of which a run keeps "
                    "only what it needs: give the second one another name, so that it reads it anew"
                )


def _misfits(before: Run, run: Run) -> Iterator[str]:
    """Settings with which a stage could not go on from the one before it."""
    for change in changes(before, run):
        weights = change.field in _SAME_WEIGHTS or (change.field.startswith("model.") and change.shapes)
        moments = change.shapes and not weights and run.follow.optimizer == "continue"
        if weights or moments:
            what = "weights" if weights else "optimizer's state"
            fix = "" if weights else ", or let it begin anew (follow.optimizer reset)"
            yield (
                f"stage {run.name!r} goes on with the {what} of {before.name!r}, but {change} between them: give both "
                f"the same{fix}"
            )
