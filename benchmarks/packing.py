"""How many packed rows one core makes, and how full they are beside next-fit and first-fit on the same examples.

    .venv/bin/python benchmarks/packing.py [--rows 20000] [--repeats 3] [--tasks 300]

First part: log-normal inputs (median 180) and targets (medians 15, 40 and 60; all sigma 0.9) in slots of 1024/256;
examples that exceed a slot are left out, or (second line) cut at it. Where they are cut, no packer can fill the slots:
an example of full inputs leaves the rest of its target slot empty. The bound counts just that.

Second part: rows per CPU second of a mixture as T0 has it, from built stores to finished arrays: which task and example
each draw is, their stored lengths, the plan, and the copying of tokens into T5X's fields. Medians over the repeats.
"""

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from spanloom.pipeline.data import open_data
from spanloom.pipeline.packing import WINDOW, first_fit, next_fit, pack_windows
from spanloom.pipeline.positions import TrainingRows
from spanloom.settings.mixture import ByAlpha, Mixture, Weighted
from spanloom.settings.model import Model
from spanloom.settings.objectives import Supervised
from spanloom.settings.packing import Packed
from spanloom.settings.run import Run
from spanloom.settings.task import PairFiles, Task

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


def mixture(tasks: int, median: float, directory: Path) -> Run:
    """A run on tasks of 500 to 5,000 pairs, drawn in proportion to their size to the 0.7."""
    parts = []
    for task, size in enumerate(np.random.default_rng(0).integers(500, 5000, tasks).tolist()):
        file = directory / f"{task}.tsv"
        lengths = log_normal(size, median, cut=False, seed=task)
        lines = (f"{'x' * (inputs - 1)}\t{'y' * (targets - 1)}\n" for inputs, targets in lengths[(lengths > 1).all(1)])
        file.write_text("inputs\ttargets\n" + "".join(lines))
        source = PairFiles((str(file),), heldout_share=0.0)
        parts.append(Weighted(Task(f"task {task}", source, objective=Supervised()), ByAlpha(0.7)))
    model = Model(384, d_model=8, d_ff=8, num_heads=1, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
    return Run("bench", Mixture("all", tuple(parts)), model, packing=Packed(*SLOTS), batch_size=BATCH, steps=1)


def pack_all(train: TrainingRows, rows: int) -> int:
    """Batches of packed rows from the start on; how many rows there were."""
    position = train.start
    for _ in range(rows // BATCH):
        _, position = train.take(position, BATCH)
    return rows // BATCH * BATCH


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
        with tempfile.TemporaryDirectory() as folder:
            data = open_data(mixture(asked.tasks, median, Path(folder)), Path(folder) / "run")
            got = rate(functools.partial(pack_all, data.train, asked.rows), asked.repeats)
        print(f"{asked.tasks} tasks, targets of median {median}: {got:,.0f} rows a CPU second (promised: {TARGET:,})")


if __name__ == "__main__":
    main()
