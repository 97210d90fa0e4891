"""Results as rows of one table: a row for each task, those of a data set taken together, and all data sets."""

import csv
import io
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

TASK = "task"
MACRO = "macro average"
NAMES = ("checkpoint", "data set", "template")
"""Columns of `table_of` that hold no number."""
BOUNDS = ("_low", "_high")
"""Endings of the names of an interval's ends."""
_OF_TEMPLATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "lower quartile": lambda values: float(np.quantile(values, 0.25)),
    "upper quartile": lambda values: float(np.quantile(values, 0.75)),
}


@dataclass(frozen=True)
class Row:
    """One row."""

    checkpoint: str
    """Name of the model."""
    kind: str
    """task; of the templates of a data set mean, median, lower quartile or upper quartile; of the means of all data
    sets macro average."""
    data_set: str
    """Empty in the row of all."""
    template: str
    """Of a task; empty where it is made of none."""
    task: str
    """Its name; empty in rows of several."""
    examples: int
    """Of all tasks that the row is of."""
    numbers: Mapping[str, float]
    """By name."""

    @property
    def plain(self) -> dict[str, str | int | float | None]:
        """As JSON has it; what is no number is None."""
        named: dict[str, str | int | float | None] = {
            "checkpoint": self.checkpoint,
            "kind": self.kind,
            "data_set": self.data_set,
            "template": self.template,
            "task": self.task,
            "examples": self.examples,
        }
        return {**named, **{name: value if math.isfinite(value) else None for name, value in self.numbers.items()}}


def with_averages(rows: Iterable[Row]) -> list[Row]:
    """The rows of tasks, those of a data set under one another with what they are together below them, checkpoint by
    checkpoint. Averages are of the rows that have the number, and have no intervals.
    """
    found: list[Row] = []
    for checkpoint, of_checkpoint in _grouped(rows, lambda row: row.checkpoint).items():
        means = []
        for data_set, tasks in _grouped(of_checkpoint, lambda row: row.data_set).items():
            several = [_together(tasks, kind, average, data_set) for kind, average in _OF_TEMPLATES.items()]
            found += [*tasks, *several]
            means.append(several[0])
        found.append(replace(_together(means, MACRO, statistics.fmean, ""), checkpoint=checkpoint))
    return found


def shown(rows: Sequence[Row]) -> list[Row]:
    """The rows without those that repeat another: averages of one task, or of one data set."""
    tasks = {(row.checkpoint, row.task): row for row in rows if row.kind == TASK}.values()
    templates = Counter((row.checkpoint, row.data_set) for row in tasks)
    data_sets = Counter(checkpoint for checkpoint, _ in templates)

    def counted(row: Row) -> int:
        return data_sets[row.checkpoint] if row.kind == MACRO else templates[row.checkpoint, row.data_set]

    return [row for row in rows if row.kind == TASK or counted(row) > 1]


def columns_of(rows: Iterable[Row], bounds: bool = True) -> list[str]:
    """Names of all numbers, by first mention; without `bounds` not those of the ends of intervals."""
    names = dict.fromkeys(name for row in rows for name in row.numbers)
    return [name for name in names if bounds or not (name.endswith(BOUNDS) and name.rpartition("_")[0] in names)]


def as_text(row: Row, name: str) -> str:
    """A number as it is shown, with its interval where there is one; empty where the row has none."""
    if name not in row.numbers:
        return ""
    low, high = (row.numbers.get(name + end) for end in BOUNDS)
    text = _digits(name, row.numbers[name])
    return text if low is None or high is None else f"{text} [{_digits(name, low)}, {_digits(name, high)}]"


def as_jsonl(rows: Iterable[Row]) -> str:
    """A JSON object a line."""
    return "".join(json.dumps(row.plain, ensure_ascii=False) + "\n" for row in rows)


def as_csv(rows: Sequence[Row]) -> str:
    """A table with a header; numbers in full precision."""
    names = [*list(replace(rows[0], numbers={}).plain), *columns_of(rows)]
    out = io.StringIO()
    table = csv.DictWriter(out, names, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(row.plain for row in rows)
    return out.getvalue()


def as_markdown(rows: Sequence[Row]) -> str:
    """A table for people."""
    return "\n".join(_markdown_lines(list(table_of(rows)))) + "\n"


def table_of(rows: Sequence[Row]) -> Iterator[list[str]]:
    """The cells of the table that is shown, the header first."""
    rows = shown(rows)
    names, several = columns_of(rows, bounds=False), len({row.checkpoint for row in rows}) > 1
    yield [*(["checkpoint"] if several else []), "data set", "template", "examples", *names]
    for row in rows:
        template = row.template if row.kind == TASK else f"({row.kind})"
        numbers = [as_text(row, name) for name in names]
        yield [*([row.checkpoint] if several else []), row.data_set, template, f"{row.examples:,}", *numbers]


def _together(rows: Sequence[Row], kind: str, average: Callable[[Sequence[float]], float], data_set: str) -> Row:
    numbers = {}
    for name in columns_of(rows, bounds=False):
        values = [row.numbers[name] for row in rows if name in row.numbers]
        numbers[name] = average(values)
    return Row(rows[0].checkpoint, kind, data_set, "", "", sum(row.examples for row in rows), numbers)


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _digits(name: str, value: float) -> str:
    return f"{value:.4f}" if "loss" in name else f"{value:.2f}"


def _markdown_lines(table: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *rows = table
    yield _markdown_line(head)
    yield "|" + "|".join("---" if name in NAMES else "---:" for name in head) + "|"
    yield from map(_markdown_line, rows)


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
