"""Everything that `spanloom show` says of a run's data, collected once for every way of showing it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from spanloom.pipeline.columns import Column
from spanloom.pipeline.data import Data, TaskData
from spanloom.pipeline.facts.batch import BatchFacts, batch_facts
from spanloom.pipeline.facts.draws import Planned, first_tasks, planned_draws
from spanloom.pipeline.facts.effort import effort_for
from spanloom.pipeline.facts.lengths import ends_of
from spanloom.pipeline.facts.pieces import LaidOut, lay_out
from spanloom.pipeline.facts.tasks import TaskFacts, task_facts
from spanloom.pipeline.facts.token_columns import token_columns
from spanloom.pipeline.spool.dataset import StreamDataset
from spanloom.pipeline.spool.examples import SpoolColumn
from spanloom.settings.run import Run
from spanloom.tasks.feature_vocabularies import vocabularies_of


@dataclass(frozen=True)
class ShownTask:
    """One task and some of its examples."""

    facts: TaskFacts
    """Counts, rates and lengths."""
    examples: tuple[LaidOut, ...]
    """The first that training draws from it."""


@dataclass(frozen=True)
class RunFacts:
    """The data of a run."""

    name: str
    """Name of the run."""
    steps: int
    """Planned steps."""
    batch_size: int
    """Rows of a batch."""
    planned: Planned
    """What the planned steps draw."""
    widths: dict[str, int]
    """Tokens of a row: "encoder" and "decoder"."""
    tasks: tuple[ShownTask, ...]
    """Those asked for, in the order of the settings."""
    num_tasks: int
    """Tasks of the run, shown or not."""
    batch: BatchFacts
    """The first training batch."""
    warnings: tuple[str, ...]
    """The misfits of all tasks shown."""


def run_facts(run: Run, data: Data, tasks: Sequence[TaskData], *, examples: int, rows: int = 0) -> RunFacts:
    """The facts of some of a run's tasks: `examples` of each, and the text of `rows` rows of the first batch."""
    planned, effort = planned_draws(run, data), effort_for(len(tasks))
    shown = tuple(
        ShownTask(
            task_facts(data, one, planned, effort),
            tuple(_laid_out(data, one, examples)),
        )
        for one in tasks
    )
    batch, _ = data.train.take(data.train.start, run.batch_size)
    misfits = [text for one in shown for text in one.facts.misfits]
    return RunFacts(
        name=run.name,
        steps=run.steps,
        batch_size=run.batch_size,
        planned=planned,
        widths=data.lengths,
        tasks=shown,
        num_tasks=len(data.tasks),
        batch=batch_facts(batch, data.vocabulary, first_tasks(data, run.batch_size), in_full=rows),
        warnings=tuple(misfits),
    )


def _laid_out(data: Data, one: TaskData, count: int) -> Iterator[LaidOut]:
    """The first examples of a task, at most all."""
    columns: Mapping[str, Column | SpoolColumn] = token_columns(one.train.store)
    ends = ends_of(one.task)
    if isinstance(one.train, StreamDataset):  # examples are numbered over all that there ever was
        columns = {name: SpoolColumn(one.train.spool, name) for name in columns}
    own = vocabularies_of(one.task, data.vocabulary)
    vocabularies = tuple(own.get(side, data.vocabulary) for side in ("inputs", "targets"))
    for example in one.train.drawn(0, min(count, one.train.num_examples)):
        laid = lay_out(example, one.task.objective, *vocabularies)
        if {"inputs", "targets"} <= columns.keys():  # rows as they are stored, but for what is put after them, and cut
            whole = {side: len(columns[side].row(example.number)) + ends[side] for side in ("inputs", "targets")}
            cut = (max(whole["inputs"] - len(example.inputs), 0), max(whole["targets"] - len(example.targets), 0))
            laid = replace(laid, cut=cut)
        yield laid
