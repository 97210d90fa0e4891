"""From the training parts of a run's tasks to the rows that it trains on: mixed, packed, and as it went on before."""

from collections.abc import Mapping

from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.eras import Era, Eras, Resumption, continued, earlier_slots, plan_from
from spanloom.pipeline.examples import DataError
from spanloom.pipeline.mixed import MixedDataset
from spanloom.pipeline.packed import PackedRows
from spanloom.pipeline.positions import TrainingRows
from spanloom.settings.mixture import Mixture
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.tasks.rates import Size, task_rates, uncounted
from spanloom.tasks.rows import ROW

LEARNT = ("tokens", "inputs", "targets")
"""Columns of stores that are learnt from; others are for metrics."""


def rows_of(run: Run, parts: Mapping[str, Dataset], resumption: Resumption | None) -> tuple[TrainingRows, Eras]:
    """What a run trains on, out of the training part of each task by name, and how its tasks are drawn.

    Raises DataError where the data cannot be learned from as the settings stand.
    """
    slots = _slots(run.packing, parts) if isinstance(run.packing, Packed) else None
    now = _era(run, parts, slots)
    try:
        eras: Eras = (now,)
        if resumption is not None and not _is_renamed(now, resumption):
            eras = continued(now, resumption.eras, resumption.position)
        names, plan = plan_from(eras)
    except ValueError as error:
        raise DataError(str(error)) from None
    draws: Dataset | MixedDataset = parts[names[0]]
    if isinstance(run.task, Mixture) or len(names) > 1:
        draws = MixedDataset([parts[name] for name in names], plan)
    rows: TrainingRows = draws
    if isinstance(run.packing, Packed) and slots:
        # of a stream that went on only what is near is still there
        measured = resumption.position["window"] if resumption is not None and draws.is_stream else 0
        rows = PackedRows(draws, slots, run.packing.max_segments, earlier_slots(eras), measured)
    if draws.num_draws is not None:
        _check_end(run, draws.num_draws, rows.examples_per_row)
    return rows, eras


def _is_renamed(now: Era, resumption: Resumption) -> bool:
    """Whether the only task there ever was has another name: nothing is drawn otherwise."""
    names = {name for era in resumption.eras for name in era.rates}
    return len(now.rates) == len(names) == 1 and names != {*now.rates}


def size_of(part: Dataset) -> Size:
    """What rates may go by: examples as the run draws them; documents, characters and tokens as the store counted them.

    Those of examples that are made when they are read nobody counts, and none of a stream.
    """
    if part.is_stream:
        return Size()
    counts = part.store.meta["counts"]
    if ROW in counts["columns"] and len(counts["columns"]) == 1:
        return Size(part.num_examples, counts["examples"])
    tokens = sum(column["tokens"] for name, column in counts["columns"].items() if name in LEARNT)
    return Size(part.num_examples, counts["examples"], counts["characters"], tokens)


def _era(run: Run, parts: Mapping[str, Dataset], slots: tuple[int, int] | None) -> Era:
    """How the settings have tasks drawn."""
    if not isinstance(run.task, Mixture):
        return Era(0, {run.task.name: 1.0}, seed=run.seed, slots=slots)
    sizes = {name: size_of(part) for name, part in parts.items()}
    streams = [name for name, part in parts.items() if part.is_stream]
    if by_size := sorted(name for name, _ in uncounted(run.task, sizes) if name in streams):
        raise DataError(
            f"the rate of task {by_size[0]!r} in mixture {run.task.name!r} goes by its size, but its rows are a "
            "stream, and nobody knows how many there are: give it a number as its rate"
        )
    try:
        rates = task_rates(run.task, sizes)
    except ValueError as error:
        raise DataError(str(error)) from None
    epochs_of = dict(zip(rates.names, rates.epochs, strict=True))
    if ending := [name for name in streams if epochs_of[name] is not None]:
        raise DataError(
            f"task {ending[0]!r} in mixture {run.task.name!r} is to be used for a number of epochs, but its rows are a "
            "stream, and nobody knows when it has ended: leave epochs unset"
        )
    limits = {name: epochs * parts[name].num_examples for name, epochs in epochs_of.items() if epochs is not None}
    by_name = dict(zip(rates.names, rates.rates.tolist(), strict=True))
    return Era(0, by_name, limits, run.task.stop, run.seed, slots)


def _slots(packing: Packed, parts: Mapping[str, Dataset]) -> tuple[int, int]:
    """Room of a packed row. Raises DataError where the longest examples would not fit."""
    slots = []
    for side in ("inputs", "targets"):
        longest, widest = max((getattr(part, f"{side}_length"), name) for name, part in parts.items())
        slots.append(getattr(packing, f"{side}_length") or longest)
        if slots[-1] < longest:
            raise DataError(
                f"packing.{side}_length is {slots[-1]}, but task {widest!r} has {side} of up to {longest} tokens: "
                f"raise it, or cut the task's (task.objective.{side}_length and task.objective.too_long trim)"
            )
    return slots[0], slots[1]


def _check_end(run: Run, num_draws: int, examples_per_row: float) -> None:
    """Raises DataError where the data end before the run does; of packed rows, where they surely do."""
    taken = run.steps * run.batch_size * examples_per_row
    if num_draws < taken * (1.0 if examples_per_row == 1.0 else 0.98):
        steps = int(num_draws / examples_per_row) // run.batch_size
        raise DataError(
            f"the mixture {run.task.name!r} ends after {num_draws:,} examples, when its epochs are used up, and "
            f"{run.steps:,} steps of {run.batch_size} take {taken:,.0f}: lower --steps to {steps}, or give its tasks "
            "more epochs"
        )
