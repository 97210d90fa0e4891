"""How often each task is drawn in the planned steps."""

from dataclasses import dataclass

from spanloom.pipeline.data import Data
from spanloom.pipeline.eras import plan_from
from spanloom.pipeline.mixed import MixedDataset
from spanloom.pipeline.packed import PackedRows
from spanloom.settings.run import Run


@dataclass(frozen=True)
class Planned:
    """The examples that the planned steps take."""

    rows: int
    """Rows of all batches."""
    total: int
    """Examples in them."""
    draws: dict[str, int]
    """Examples by task."""
    is_exact: bool
    """Whether they were counted; else the first rows tell how many examples share one."""


def planned_draws(run: Run, data: Data) -> Planned:
    """Counts the draws, of a mixture through its plan: at once, however many there are."""
    rows, train = run.steps * run.batch_size, data.train
    is_packed = isinstance(train, PackedRows)
    draws = train.draws if isinstance(train, PackedRows) else train
    total = round(rows * train.examples_per_row)
    if not isinstance(draws, MixedDataset):
        return Planned(rows, total, {data.tasks[0].task.name: total}, not is_packed)
    total = total if draws.plan.end is None else min(total, draws.plan.end)
    counts = zip(_numbered(data), draws.plan.counts(total).tolist(), strict=True)
    return Planned(rows, total, dict(counts), not is_packed)


def first_tasks(data: Data, rows: int) -> list[list[str]]:
    """The names of the tasks that the segments of the first rows are of; a row that is not packed is one."""
    names, train = _numbered(data), data.train
    if isinstance(train, PackedRows):
        numbers = train.tasks_of(train.start, rows)
    elif isinstance(train, MixedDataset):
        numbers = [[number] for number in train.plan.draws(0, rows)[0].tolist()]
    else:
        numbers = [[0]] * rows
    return [[names[number] for number in row] for row in numbers]


def _numbered(data: Data) -> list[str]:
    """Names of the tasks in the order of their numbers in draws."""
    return plan_from(data.eras)[0]
