"""How often each task is drawn in the planned steps."""

from dataclasses import dataclass

from spanloom.pipeline.data import Data
from spanloom.pipeline.mixed import MixedDataset
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
    rows = run.steps * run.batch_size
    draws = getattr(data.train, "draws", data.train)
    total = round(rows * getattr(data.train, "examples_per_row", 1.0))
    names = sorted(one.task.name for one in data.tasks)  # as plans number them
    counts = draws.plan.counts(total).tolist() if isinstance(draws, MixedDataset) else [total]
    return Planned(rows, total, dict(zip(names, counts, strict=True)), is_exact=data.train is draws)


def first_tasks(data: Data, count: int) -> list[str]:
    """The names of the tasks that the first rows are of; none where rows hold several examples."""
    if not isinstance(data.train, MixedDataset):
        return [] if hasattr(data.train, "draws") else [data.tasks[0].task.name] * count
    names = sorted(one.task.name for one in data.tasks)
    return [names[number] for number in data.train.plan.draws(0, count)[0].tolist()]
