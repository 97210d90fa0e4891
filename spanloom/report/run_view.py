"""Runs as a report shows them: what each has written so far, read again while it goes on.

A directory of stages is one run whose steps are counted on from stage to stage.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from spanloom.evaluation.fill import Piece
from spanloom.evaluation.result_rows import Row
from spanloom.report.differences import stage_directory_name, stores_of
from spanloom.report.metrics import Metrics
from spanloom.report.run_files import NoRunError, RunFiles, opened
from spanloom.settings.run import Run
from spanloom.settings.run_layout import RUN_FILE
from spanloom.settings.serialize import SettingsError, from_json

EVALUATION = "eval"
"""Folder of a run that `spanloom eval` writes results into."""
_MOST_ROWS = 5_000
_ROW = ("checkpoint", "kind", "data_set", "template", "task")


@dataclass(frozen=True)
class Filled:
    """What a finished run made of held-out text of one task."""

    task: str
    """Its name; empty for an only one."""
    text: str
    """Losses beside baselines, as they were printed."""
    fills: tuple[tuple[Piece, ...], ...]
    """Examples, their gaps filled in."""


@dataclass
class Stage:
    """One run directory."""

    name: str
    """Of its run."""
    files: RunFiles
    """Where it is."""
    run: Run | None
    """Its settings; None where they cannot be read."""
    metrics: Metrics
    """What it wrote while it trained."""
    problem: str = ""
    """Why its settings cannot be read."""
    first: int = 0
    """Steps of the stages before it."""
    commands: list[dict[str, Any]] = field(default_factory=list)
    """What was typed, start by start."""
    filled: list[Filled] = field(default_factory=list)
    """What was measured when it was done."""
    stores: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Descriptions of its stores, by TASK/PART."""

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.metrics.last_step

    @property
    def planned(self) -> int | None:
        """Steps asked for; None where that cannot be read."""
        return None if self.run is None else self.run.steps


class View:
    """A run, or stages that follow one another, as far as they have come."""

    def __init__(self, place: str) -> None:
        """Raises NoRunError where there is no run, and BadInputError where a bucket cannot be asked."""
        self.files = opened(place)
        if self.files.is_checkpoint and not self.files.is_run:
            raise NoRunError(f"{place} is a checkpoint: name the run that it is of")
        self.label = self.files.name
        """What it is called beside others, see `labelled`."""
        self.stages: list[Stage] = []
        self.evaluations: list[Row] = []
        """Results of `spanloom eval`, with averages."""
        self.is_staged = False
        """Whether it is a directory of stages."""
        self.refresh(whole=True)

    def refresh(self, *, whole: bool) -> bool:
        """Read what has come since; whether anything has. `whole`: also what is written once or seldom."""
        self.files.refresh()
        if whole:
            self._read_settings()
        changed = [stage.metrics.refresh() for stage in self.stages]
        first = 0
        for stage in self.stages:
            stage.first, first = first, first + stage.steps
        if whole:
            self._read_results()
        return any(changed)

    @property
    def steps(self) -> int:
        """Steps done, of all stages."""
        return sum(stage.steps for stage in self.stages)

    @property
    def planned(self) -> int | None:
        """Steps asked for; None where that cannot be read."""
        planned = [stage.planned for stage in self.stages]
        return None if None in planned else sum(filter(None, planned))

    @property
    def tasks(self) -> list[str]:
        """Names of all tasks that were evaluated."""
        return list(dict.fromkeys(task for stage in self.stages for task in stage.metrics.tasks))

    def _read_settings(self) -> None:
        known = {stage.files.place: stage for stage in self.stages}
        data = self.files.stages
        self.is_staged = data is not None
        if data is None:
            places = [(self.files, self.files.object_of(RUN_FILE))]
        else:
            places = [(self._stage_files(number, one), one) for number, one in enumerate(data, 1)]
        found = []
        for files, asked in places:
            own = files.object_of(RUN_FILE) or asked
            run, problem = _read_run(own)
            stage = known.get(files.place) or Stage("", files, run, Metrics(files))
            stage.run, stage.problem = run, problem
            stage.name = files.name if run is None else run.name
            stage.commands = files.objects_of("commands.jsonl")
            found.append(stage)
        self.stages = found

    def _stage_files(self, number: int, data: dict[str, Any]) -> RunFiles:
        run, _ = _read_run(data)
        name = f"{number}-{data.get('name')}" if run is None else stage_directory_name(number, run)
        return self.files.below(name.replace("/", "_"))

    def _read_results(self) -> None:
        rows: list[Row] = []
        for stage in self.stages:
            stage.filled = list(_filled_in(stage.files))
            if not stage.stores:
                stage.stores = stores_of(stage.files) or stores_of(self.files)
            rows += _rows_in(stage.files)
        self.evaluations = rows if not self.is_staged else [*_rows_in(self.files), *rows]


def views_of(places: Sequence[str]) -> list[View]:
    """The runs, each with a label of its own. Raises NoRunError and BadInputError."""
    views = [View(place) for place in places]
    for view, label in zip(views, labelled([view.files.place for view in views]), strict=True):
        view.label = label
    return views


def labelled(places: Sequence[str]) -> list[str]:
    """The ends of the places by which they can be told apart."""
    parts = [place.replace("\\", "/").strip("/").split("/") for place in places]
    for count in range(1, max(map(len, parts), default=1) + 1):
        found = ["/".join(one[-count:]) for one in parts]
        if len(set(found)) == len(found):
            return found
    return [f"{'/'.join(one)} ({number})" for number, one in enumerate(parts, 1)]


def _read_run(data: Any) -> tuple[Run | None, str]:
    if data is None:
        return None, f"{RUN_FILE} is missing or damaged"
    try:
        run = from_json(data)
    except SettingsError as error:
        return None, str(error)
    return (run, "") if isinstance(run, Run) else (None, "it holds no run")


def _filled_in(files: RunFiles) -> Iterable[Filled]:
    for name in files.names():
        if not (name == "results.json" or (name.startswith("results-") and name.endswith(".json"))):
            continue
        body = (files.object_of(name) or {}).get("results")
        if not isinstance(body, dict):
            continue
        task = "" if name == "results.json" else unquote(name.removeprefix("results-").removesuffix(".json"))
        said = body.get("text")
        yield Filled(task, said if isinstance(said, str) else "", tuple(fills_in(body.get("fills"))))


def fills_in(found: Any) -> Iterable[tuple[Piece, ...]]:
    """Examples in pieces, of JSON data; what is none is left out."""
    for pieces in found if isinstance(found, list) else ():
        if isinstance(pieces, list) and all(map(_is_piece, pieces)):
            yield tuple(Piece(text, guess, bool(known)) for text, guess, known in pieces)


def _is_piece(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and (value[1] is None or isinstance(value[1], str))
    )


def _rows_in(files: RunFiles) -> list[Row]:
    """Rows of evaluations; what is no row is left out."""
    return [row for one in files.objects_of(f"{EVALUATION}/results.jsonl")[:_MOST_ROWS] if (row := _row(one))]


def _row(data: dict[str, Any]) -> Row | None:
    checkpoint, kind, data_set, template, task = (data.get(name) for name in _ROW)
    words = (checkpoint, kind, data_set, template, task)
    examples = data.get("examples")
    if not all(isinstance(word, str) for word in words) or type(examples) is not int:
        return None
    numbers = {name: _number(value) for name, value in data.items() if name not in (*_ROW, "examples")}
    known = {name: value for name, value in numbers.items() if value is not None}
    return Row(str(checkpoint), str(kind), str(data_set), str(template), str(task), examples, known)


def _number(value: Any) -> float | None:
    if value is None:
        return math.nan
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return math.inf
