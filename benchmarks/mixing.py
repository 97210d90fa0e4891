"""How many draws of a mixture one core makes, and how long the plan of its tasks takes.

    .venv/bin/python benchmarks/mixing.py [--tasks 10 100 1000] [--block 4096] [--repeats 5]

Rates are log-normal (sigma 2); draws start at 0 and far on, where they must cost the same. Figures are medians over the
repeats, per CPU second of the whole process.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spanloom.pipeline.mixing import Schedule, schedule_of
from spanloom.pipeline.mixing_plan import plan_of

FAR = 10**15
"""A draw that no run reaches."""


@dataclass(frozen=True)
class Figures:
    """What one mixture reached."""

    tasks: int
    plan_seconds: float
    plan_with_epochs_seconds: float
    draws_per_cpu_second: float
    far_draws_per_cpu_second: float
    worst_deviation: float
    """Draws that the worst task is off its rate, over all windows of 10,000 in the first 100,000 draws."""


def cpu_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median over the repeats."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return statistics.median(spent)


def draw_blocks(schedule: Schedule, first: int, block: int, draws: int = 400_000) -> int:
    """Draws in blocks from `first` on; how many there were."""
    blocks = max(draws // block, 1)
    for number in range(blocks):
        schedule.draws(first + number * block, block)
    return blocks * block


def worst_deviation(schedule: Schedule, rates_T: np.ndarray, window: int = 10_000) -> float:
    """The largest difference of count and rate over the windows and tasks."""
    tasks, _ = schedule.draws(0, 10 * window)
    worst = 0.0
    for task, share in enumerate(rates_T / rates_T.sum()):
        so_far = np.concatenate([[0], np.cumsum(tasks == task)])
        worst = max(worst, float(np.abs(so_far[window:] - so_far[:-window] - window * share).max()))
    return worst


def measure(tasks: int, block: int, repeats: int) -> Figures:
    """All figures of one number of tasks."""
    rates_T = np.exp(2 * np.random.default_rng(tasks).standard_normal(tasks))
    sizes_T = np.random.default_rng(tasks).integers(100, 10_000, tasks)
    schedule = schedule_of(rates_T)
    count = draw_blocks(schedule, 0, block)
    return Figures(
        tasks,
        cpu_seconds(lambda: schedule_of(rates_T), repeats),
        cpu_seconds(lambda: plan_of(rates_T, sizes_T), min(repeats, 3)),
        count / cpu_seconds(lambda: draw_blocks(schedule, 0, block), repeats),
        count / cpu_seconds(lambda: draw_blocks(schedule, FAR, block), repeats),
        worst_deviation(schedule, rates_T),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 100, 1000], help="numbers of tasks")
    parser.add_argument("--block", type=int, default=4096, help="draws made at a time")
    parser.add_argument("--repeats", type=int, default=5, help="times that each figure is taken")
    asked = parser.parse_args()
    for tasks in asked.tasks:
        got = measure(tasks, asked.block, asked.repeats)
        print(
            f"{got.tasks:5} tasks: {got.draws_per_cpu_second / 1e6:5.1f} million draws per CPU second from 0, "
            f"{got.far_draws_per_cpu_second / 1e6:5.1f} from {FAR:.0e}; plan {1e3 * got.plan_seconds:.1f} ms, "
            f"with epochs {got.plan_with_epochs_seconds:.2f} s; 10,000 draws at most {got.worst_deviation:.2f} off"
        )


if __name__ == "__main__":
    main()
