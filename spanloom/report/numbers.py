"""The tables of a run's data as rows of text, the same for a terminal and a page."""

from spanloom.pipeline.facts.batch import BatchFacts, Row
from spanloom.pipeline.facts.pieces import LaidOut
from spanloom.pipeline.facts.run import RunFacts, ShownTask
from spanloom.pipeline.facts.tasks import TaskFacts

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""Headings, and rows."""
NAMES = ("task", "part", "objective", "side", "parameter", "divided along")
"""Headings of columns that hold words."""


def head(facts: RunFacts) -> str:
    """The run in one sentence."""
    planned = facts.planned
    about = "" if planned.is_exact else "about "
    some = f"; {len(facts.tasks)} of {facts.num_tasks} tasks" if len(facts.tasks) < facts.num_tasks else ""
    return (
        f"run {facts.name}: {facts.steps:,} steps of {facts.batch_size:,} rows of {facts.widths['encoder']:,} + "
        f"{facts.widths['decoder']:,} tokens draw {about}{planned.total:,} examples{some}"
    )


def batch_line(facts: RunFacts) -> str:
    """The first batch in one sentence."""
    batch = facts.batch
    padding = ", ".join(f"{batch.padding(side):.1%} of the {side}'s tokens" for side in batch.widths)
    packed = f"; {batch.num_segments / max(len(batch.rows), 1):.1f} examples share a row" if batch.is_packed else ""
    return f"first batch: {len(batch.rows):,} rows, padding is {padding}{packed}"


def example_line(task: ShownTask, number: int, example: LaidOut) -> str:
    """Which example this is, and how long."""
    inputs, targets = (sum(len(piece.ids) for piece in pieces) for pieces in (example.inputs, example.targets))
    mode = f", {example.mode}-denoiser" if example.mode else ""
    if not inputs + targets:
        return f"{task.facts.name}, draw {number + 1}: left out by a preprocessor, so that its row is padding"
    return (
        f"{task.facts.name}, draw {number + 1}: example {example.number:,} ({task.facts.objective}{mode}), tokens: "
        f"{inputs:,} inputs{_cut(example.cut[0])} and {targets:,} targets{_cut(example.cut[1])}"
    )


def _cut(tokens: int) -> str:
    return f" ({tokens:,} more are cut)" if tokens else ""


def row_line(batch: BatchFacts, row: Row) -> str:
    """How full a row of a batch is, the lengths of its segments if it is packed, and its task where that is known."""
    used = [
        f"{side} {row.used(side):,} of {width:,} ({1 - row.used(side) / max(width, 1):.1%} padding)"
        for side, width in batch.widths.items()
    ]
    borders = [
        f"{'+'.join(f'{length:,}' for length in segment.lengths.values()) if batch.is_packed else ''} {segment.task}"
        for segment in row.segments
    ]
    return "; ".join([*used, " | ".join(border.strip() for border in borders)])


def amounts(facts: RunFacts) -> Table:
    """How much there is of each task, and how often it is drawn."""
    headings = (
        "task",
        "examples",
        "held out",
        "tokens",
        "tokens an epoch",
        "rate asked",
        "rate drawn",
        "examples drawn",
        "epochs",
    )
    return headings, [_amounts(one.facts, "" if facts.planned.is_exact else "~") for one in facts.tasks]


def _amounts(task: TaskFacts, about: str) -> tuple[str, ...]:
    sampled = "~" if task.is_sample else ""
    return (
        task.name,
        "stream" if task.is_stream else f"{task.examples:,}",
        f"{task.heldout:,}" if task.heldout else "none",
        f"{task.tokens:,}" if task.tokens and not task.is_stream else "-",
        "stream" if task.is_stream else f"{sampled}{task.tokens_per_epoch:,}",
        f"{task.rate:.2%}",
        f"{task.share:.2%}",
        f"{about}{task.draws:,}",
        "stream" if task.is_stream else f"{about}{task.epochs:,.2f}",
    )


def lengths(facts: RunFacts) -> Table:
    """How long inputs and targets of each task are, and what becomes of that in a row of its own."""
    headings: tuple[str, ...] = ("task", "objective", "side", "row", "mean", "longest", "padding", "cut", "share cut")
    rows: list[tuple[str, ...]] = []
    for one in facts.tasks:
        for side, width in zip(("inputs", "targets"), facts.widths.values(), strict=True):
            found = one.facts.lengths[side]
            about = "~" if found.is_sample else ""
            rows.append(
                (
                    one.facts.name,
                    one.facts.objective,
                    side,
                    f"{width:,}",
                    f"{about}{found.mean:,.1f}",
                    f"{about}{found.longest:,}",
                    f"{about}{found.padding(width):.1%}",
                    f"{about if found.truncated else ''}{found.truncated:,}",
                    f"{about if found.truncated else ''}{found.share_truncated:.2%}",
                )
            )
    return headings, rows


def notes(facts: RunFacts) -> list[str]:
    """What the signs in the tables mean, where they are used."""
    found = ["padding: what one example to a row leaves empty"]
    if any(one.facts.is_sample for one in facts.tasks):
        found.append("~ : from a sample")
    if not facts.planned.is_exact:
        found.append("~ of draws: by the examples that share a row at first")
    return found
