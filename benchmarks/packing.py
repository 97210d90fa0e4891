"""How many packed rows one core makes, and how full they are beside next-fit and first-fit on the same examples.

    .venv/bin/python benchmarks/packing.py [--rows 20000] [--repeats 3] [--tasks 300]

First part: log-normal inputs (median 180) and targets (medians 15, 40 and 60; all sigma 0.9) in slots of 1024/256;
examples that exceed a slot are left out, or (second line) cut at it. Where they are cut, no packer can fill the slots:
an example of full inputs leaves the rest of its target slot empty. The bound counts just that.

Second part: rows per CPU second of a mixture as T0 has it, from rates to finished arrays: which task and example each
draw is, their stored lengths, the plan, and the copying of tokens into T5X's fields. Medians over the repeats.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.mixing import schedule_of
from spanloom.pipeline.order import TrainingOrder
from spanloom.pipeline.packed_order import START, PackedOrder
from spanloom.pipeline.packed_rows import encoder_decoder_rows
from spanloom.pipeline.packing import WINDOW, first_fit, next_fit, pack_windows
from spanloom.pipeline.shards import Ragged, ragged

SLOTS = (1024, 256)
MEDIANS = (15, 40, 60)
BATCH = 128
TARGET = 10_000
"""Packed rows a CPU second that the project promises."""


def log_normal(examples: int, median: float, *, cut: bool, seed: int = 0) -> np.ndarray:
    """(examples, 2) lengths of inputs and targets; those beyond the slots cut, or left out."""
    noise = np.random.default_rng(seed).standard_normal((2 * examples, 2))
    lengths = np.maximum(np.rint(np.array([180, median]) * np.exp(0.9 * noise)), 1).astype(np.int64)
    if cut:
        return np.minimum(lengths, SLOTS)[:examples]
    return lengths[(lengths <= SLOTS).all(axis=1)][:examples]


def best_possible(lengths_NxF: np.ndarray, feature: int) -> float:
    """A bound on the used share of a feature's slots: examples that fill another slot are alone in their row."""
    alone_N = np.any(np.delete(lengths_NxF >= np.array(SLOTS), feature, axis=1), axis=1)
    shares_N = lengths_NxF[:, feature] / SLOTS[feature]
    return float(shares_N.sum() / (alone_N.sum() + shares_N[~alone_N].sum()))


def fill(median: float, *, cut: bool, windows: int = 8) -> str:
    """One line: used shares of the binding feature's slots."""
    lengths = log_normal(windows * WINDOW, median, cut=cut)
    by_window = lengths.reshape(windows, WINDOW, 2)
    demand = lengths.sum(axis=0) / np.array(SLOTS)
    binding = int(demand.argmax())
    start = time.process_time()
    rows = {"planned": sum(map(len, pack_windows(by_window, SLOTS)))}
    spent = time.process_time() - start
    rows |= {plan.__name__: int((plan(by_window, SLOTS).max(axis=1) + 1).sum()) for plan in (first_fit, next_fit)}
    shares = ", ".join(f"{name} {100 * demand[binding] / count:.1f} %" for name, count in rows.items())
    name, kind = ("inputs", "targets")[binding], "cut" if cut else "left out"
    planned, limit = rows["planned"] / spent, 100 * best_possible(lengths, binding)
    return (
        f"targets of median {median}, long examples {kind}: {name} bind; {shares} of their slots used "
        f"(at most {limit:.1f} %); {planned:,.0f} rows planned a CPU second"
    )


@dataclass(frozen=True, eq=False)
class Mixed:
    """A mixture of made-up tasks in memory, drawn, ordered and read as a run does."""

    tasks: tuple[tuple[Ragged, Ragged], ...]
    rates_T: np.ndarray

    def find(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """(task, example) of draws."""
        drawn, before = schedule_of(self.rates_T).draws(first, count)
        examples = np.empty(count, np.int64)
        for task, here in groups(drawn):
            size = len(self.tasks[task][0].offsets) - 1
            order = TrainingOrder(size, 0, f"task {task}")
            examples[here] = order.draws(int(before[here[0]]), len(here))[1]
        return drawn, examples

    def lengths(self, drawn: np.ndarray, examples: np.ndarray) -> np.ndarray:
        """(draws, 2)."""
        found = np.empty((len(drawn), 2), np.int64)
        for task, here in groups(drawn):
            for feature, column in enumerate(self.tasks[task]):
                rows = examples[here]
                found[here, feature] = column.offsets[rows + 1] - column.offsets[rows]
        return found

    def tokens(self, drawn: np.ndarray, examples: np.ndarray) -> tuple[Ragged, Ragged]:
        """Inputs and targets of draws."""
        pairs = list(zip(drawn.tolist(), examples.tolist(), strict=True))
        columns = []
        for feature in (0, 1):
            stored = [self.tasks[task][feature] for task, _ in pairs]
            rows = [s.values[s.offsets[e] : s.offsets[e + 1]] for s, (_, e) in zip(stored, pairs, strict=True)]
            columns.append(ragged(np.concatenate(rows), [len(row) for row in rows]))
        return columns[0], columns[1]


def groups(drawn: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """(task, its draws in order)."""
    order = np.argsort(drawn, kind="stable")
    ends = np.flatnonzero(np.diff(drawn[order])) + 1
    return [(int(drawn[here[0]]), here) for here in np.split(order, ends)]


def mixture(tasks: int, median: float) -> Mixed:
    """Tasks of 500 to 5,000 examples, drawn in proportion to their size to the 0.7."""
    sizes = np.random.default_rng(0).integers(500, 5000, tasks)
    made = []
    for task, size in enumerate(sizes.tolist()):
        lengths = log_normal(size, median, cut=False, seed=task)
        columns = (ragged((np.arange(part.sum()) % 32_000).astype(np.uint16), part) for part in lengths.T)
        made.append(tuple(columns))
    return Mixed(tuple((inputs, targets) for inputs, targets in made), sizes**0.7)


def pack_all(mixed: Mixed, rows: int) -> int:
    """Batches of packed rows from the start on; how many rows there were."""
    recent: list[tuple[int, np.ndarray, np.ndarray]] = []

    def lengths(first: int, count: int) -> np.ndarray:
        found = mixed.find(first, count)
        recent.append((first, *found))
        del recent[:-2]  # a batch has rows of two plans at most
        return mixed.lengths(*found)

    order, position, made = PackedOrder(lengths, SLOTS), START, 0
    while made < rows:
        packs, position = order.take(position, BATCH)
        drawn, examples = (np.concatenate(parts) for parts in list(zip(*recent, strict=True))[1:])
        here = packs.examples - recent[0][0]
        inputs, targets = mixed.tokens(drawn[here], examples[here])
        made += len(encoder_decoder_rows(inputs, targets, SLOTS, packs.offsets)["encoder_input_tokens"])
    return made


def rate(work: Callable[[], int], repeats: int) -> float:
    """Median of what is made per CPU second of the whole process."""
    rates = []
    for _ in range(repeats):
        start = time.process_time()
        made = work()
        rates.append(made / (time.process_time() - start))
    return statistics.median(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="packed rows of the mixture in each repeat")
    parser.add_argument("--repeats", type=int, default=3, help="times that the mixture is packed")
    parser.add_argument("--tasks", type=int, default=300, help="tasks of the mixture")
    asked = parser.parse_args()
    for cut in (False, True):
        for median in MEDIANS:
            print(fill(median, cut=cut))
    for median in MEDIANS:
        mixed = mixture(asked.tasks, median)
        got = rate(functools.partial(pack_all, mixed, asked.rows), asked.repeats)
        print(f"{asked.tasks} tasks, targets of median {median}: {got:,.0f} rows a CPU second (promised: {TARGET:,})")


if __name__ == "__main__":
    main()
