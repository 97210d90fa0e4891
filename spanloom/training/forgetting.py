"""How well each language is still known after each stage: the forgetting table of runs that follow one another.

A number is the held-out loss that the run itself wrote down at the checkpoint with which the next stage begins. What is
forgotten of a language is how far its last loss lies above the lowest after any stage (Chaudhry et al. 2018 measure
accuracy so).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanloom.pipeline.durable import write_file
from spanloom.settings.run import Run
from spanloom.settings.stages import stage_directories
from spanloom.training.chosen import Which, chosen
from spanloom.training.loggers import METRICS_FILE, read_events

NAME = "forgetting"


@dataclass(frozen=True)
class Row:
    """What was measured after one stage."""

    stage: str
    """Name of its run."""
    step: int
    """Steps of that run."""
    losses: dict[str, float]
    """Held-out loss in nats a target token, by task."""


@dataclass(frozen=True)
class Forgetting:
    """The table."""

    tasks: tuple[str, ...]
    """Columns, in the order in which they are learnt."""
    rows: tuple[Row, ...]
    """One a stage, in their order."""
    notes: tuple[str, ...] = ()
    """Why numbers of a column may not compare."""

    @property
    def forgotten(self) -> dict[str, float]:
        """By task, how far the last loss lies above the lowest."""
        columns = {task: [row.losses[task] for row in self.rows if task in row.losses] for task in self.tasks}
        return {task: column[-1] - min(column) for task, column in columns.items() if column}


def forgetting_of(runs: Sequence[Run], directory: Path) -> Forgetting:
    """The table of finished stages in `directory`. Raises CheckpointError where one has no checkpoint."""
    tasks = dict.fromkeys(task.name for run in runs for task in run.tasks)
    which: list[Which] = [*(run.follow.which for run in runs[1:]), "auto"]
    places = stage_directories(runs, directory)
    rows = tuple(
        _row(run, chosen(place, way, run.stopping)) for run, place, way in zip(runs, places, which, strict=True)
    )
    measured = tuple(task for task in tasks if any(task in row.losses for row in rows))
    return Forgetting(measured, rows, tuple(_notes(runs)))


def _row(run: Run, checkpoint: Path) -> Row:
    step = int(checkpoint.name)
    losses = {
        event["task"]: float(event["heldout_loss"])
        for event in read_events(checkpoint.parent.parent / METRICS_FILE)
        if (event["kind"], event["step"]) == ("eval", step) and isinstance(event.get("heldout_loss"), int | float)
    }
    return Row(run.name, step, losses)


def _notes(runs: Sequence[Run]) -> list[str]:
    names = ("seed", "eval.max_batches", "eval.batch_size")
    values = {(run.seed, run.eval.max_batches, run.eval.batch_size) for run in runs}
    if len(values) == 1:
        return []
    differ = [name for name, column in zip(names, zip(*values, strict=True), strict=True) if len(set(column)) > 1]
    return [f"{' and '.join(differ)} differ between the stages, so a column is not of the very same batches throughout"]


def write(table: Forgetting, directory: Path) -> None:
    """Keeps the table as OUT/forgetting.json and OUT/forgetting.md. Raises StorageError on a full disk."""
    data: dict[str, Any] = {
        "tasks": list(table.tasks),
        "stages": [{"name": row.stage, "step": row.step, "heldout_loss": row.losses} for row in table.rows],
        "forgotten": table.forgotten,
        "notes": list(table.notes),
    }
    _write(directory / f"{NAME}.json", json.dumps(data, indent=1, ensure_ascii=False))
    _write(directory / f"{NAME}.md", in_words(table))


def _write(path: Path, text: str) -> None:
    write_file(path, lambda file: file.write(f"{text}\n".encode()))


def in_words(table: Forgetting) -> str:
    """The table as Markdown, its columns aligned."""
    rows = [["after stage", "step", *table.tasks]]
    rows += [[row.stage, f"{row.step:,}", *_numbers(row.losses, table.tasks)] for row in table.rows]
    rows.append(["forgotten", "", *_numbers(table.forgotten, table.tasks)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    lines = ["| " + " | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) + " |" for row in rows]
    head = "Held-out loss of each task after each stage, in nats a target token; forgotten: the last over the lowest."
    return "\n".join([head, "", *lines, *(f"\nNote: {note}." for note in table.notes)])


def _numbers(values: Mapping[str, float], tasks: Sequence[str]) -> list[str]:
    return [f"{values[task]:.4f}" if task in values else "-" for task in tasks]
