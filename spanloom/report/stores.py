"""What stands on disk once the stores of tasks were built: a row for each part, and all of it in one sentence."""

from collections.abc import Iterator, Mapping, Sequence

from spanloom.pipeline.build_tasks import Outcome
from spanloom.pipeline.store import Store
from spanloom.report.numbers import Table
from spanloom.tasks.read_report import plural
from spanloom.tasks.rows import ROW
from spanloom.training.progress import amount

HEADINGS = ("task", "part", "examples", "tokens", "unknown", "mean length", "longest", "on disk", "seconds")


def stores_table(outcomes: Sequence[Outcome]) -> Table:
    """Of each part of each task: how much there is, and how long building took.

    Lengths of inputs and targets are joined by "+"; "-" where tokens are made only when examples are read.
    """
    return HEADINGS, [row for outcome in outcomes for row in _rows(outcome)]


def _rows(outcome: Outcome) -> Iterator[tuple[str, ...]]:
    name = outcome.task.name
    if outcome.error is not None:
        yield name, "", "", "", "", "", "", "", "failed"
        return
    took = _took(outcome)
    for split, store in outcome.opened.stores.items():
        yield name, split, f"{store.num_rows:,}", *_tokens(_columns(store)), f"{amount(_bytes_of(store))}B", took
        took = "" if outcome.seconds is not None else took  # all parts are built in one pass
    if not outcome.opened.whole:
        yield name, "", "", "", "", "", "", "", "not whole yet"


def _took(outcome: Outcome) -> str:
    if outcome.opened.built_by:
        return outcome.opened.built_by
    if outcome.seconds is None:
        return "there already"
    return f"{outcome.seconds:,.1f}" if outcome.seconds >= 1 else f"{outcome.seconds:.2g}"


def _columns(store: Store) -> list[Mapping[str, int]]:
    """Counts of the columns of tokens."""
    return [counts for name, counts in store.meta["counts"]["columns"].items() if name != ROW]


def _tokens(columns: Sequence[Mapping[str, int]]) -> tuple[str, str, str, str]:
    if not columns:
        return "-", "-", "-", "-"
    tokens = sum(counts["tokens"] for counts in columns)
    unknown = sum(counts["unknown"] for counts in columns)
    means = "+".join(f"{counts['tokens'] / max(counts['rows'], 1):,.1f}" for counts in columns)
    longest = "+".join(f"{counts['longest']:,}" for counts in columns)
    return f"{tokens:,}", f"{unknown / max(tokens, 1):.3%}", means, longest


def _bytes_of(store: Store) -> int:
    return sum(entry["bytes"] for entry in store.meta["shards"])


def stores_line(outcomes: Sequence[Outcome]) -> str:
    """All of it."""
    stores = [store for outcome in outcomes for store in outcome.opened.stores.values()]
    tokens = sum(counts["tokens"] for store in stores for counts in _columns(store))
    seconds = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    built = f", {plural(len(seconds), 'task')} built in {sum(seconds):,.1f} s" if seconds else ""
    return (
        f"in all: {plural(len(outcomes), 'task')}, {sum(store.num_rows for store in stores):,} examples, "
        f"{tokens:,} tokens, {amount(sum(map(_bytes_of, stores)))}B on disk{built}"
    )
