"""What a run takes beside its steps: the compiled step alone, and the same in `train`, with all that goes on around it.

    .venv/bin/python benchmarks/loop.py [--rounds 5] [--steps 60] [--width 256] [--json FILE]

A byte model reads 16 rows of 256 / 64 tokens a step. Alone, the step is called on one batch that lies on the device. In
`train` batches are made from the store, put on the device and checked, metrics are logged to two files every 10 steps,
and a checkpoint is written every 30, while training goes on. They take turns; medians of the rounds after a first one.
Start-up and compiling are not counted. Saves need cores, too: where the step uses all of them the share below is what
they take, and next to nothing on an accelerator.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax

from spanloom.model.params import declare
from spanloom.optim.build import build, learning_rate
from spanloom.pipeline.data import open_data
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.run import Checkpoints, Evaluation, Run
from spanloom.settings.task import Task, TextFiles
from spanloom.training.loop import train
from spanloom.training.progress import Pace, SilentDisplay
from spanloom.training.state import drawn_weights, fresh_state
from spanloom.training.step import make_train_step

UNCOUNTED = 5
"""Steps of each stretch of training until it is under way."""


class Clock(SilentDisplay):
    """Reads both clocks after every step of `train`."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []

    def advance(self, pace: Pace, log_line: bool) -> None:
        """A step was done."""
        self.seen.append((time.perf_counter(), time.process_time()))

    def per_step(self) -> dict[str, float]:
        """Seconds of a step, and CPU seconds."""
        seen = self.seen[UNCOUNTED:]
        first, last = seen[0], seen[-1]
        return {name: (last[i] - first[i]) / (len(seen) - 1) for i, name in enumerate(("seconds", "cpu_seconds"))}


def run_of(folder: Path, width: int) -> Run:
    """The run that is measured."""
    text = folder / "text.txt"
    text.write_text("".join(f"line {number} of a text that is learnt again and again\n" for number in range(20_000)))
    task = Task("lines", TextFiles((str(text),), heldout_share=0), objective=SpanCorruption(256))
    model = Model(384, width, 2 * width, 4, width // 4, num_encoder_layers=2, num_decoder_layers=2)
    saved, measured = Checkpoints(every=30), Evaluation(every=10**9)
    return Run("loop", task, model, steps=10**9, batch_size=16, checkpoint=saved, eval=measured).resolve()


def alone(run: Run, folder: Path, steps: int) -> Callable[[], dict[str, float]]:
    """Measures the step by itself."""
    data = open_data(run, folder)
    batch = jax.device_put(data.train.take(data.train.start, run.batch_size)[0])
    specs = declare(run.model)
    optimizer, rate = build(run.optimizer, run.schedule, specs), learning_rate(run.optimizer, run.schedule)
    state = fresh_state(drawn_weights(specs, run.weights, jax.random.key(0)), optimizer)
    compiled = make_train_step(run.model, run.loss, optimizer, rate).lower(state, batch).compile()

    def measure() -> dict[str, float]:
        nonlocal state
        clock = Clock()
        for _ in range(steps):
            state, metrics = compiled(state, batch)
            jax.block_until_ready(metrics)
            clock.seen.append((time.perf_counter(), time.process_time()))
        return clock.per_step()

    return measure


def compared(rounds: int, steps: int, width: int, folder: Path) -> list[dict[str, Any]]:
    """A row for the step alone, and one for it in `train`."""
    run = run_of(folder, width)
    measure = alone(run, folder / "data", steps)
    found: dict[str, list[dict[str, float]]] = {"alone": [], "in train": []}
    for number in range(1, rounds + 2):
        clock = Clock()
        bare = measure()
        train(replace(run, steps=number * steps), folder / "run", display=clock)
        if number > 1:
            found["alone"].append(bare)
            found["in train"].append(clock.per_step())
    return [
        {"step": name, **{key: statistics.median(one[key] for one in rows) for key in rows[0]}, "rounds": rows}
        for name, rows in found.items()
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="stretches of either, after a first one")
    parser.add_argument("--steps", type=int, default=60, help="steps of a stretch")
    parser.add_argument("--width", type=int, default=256, help="d_model")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = compared(arguments.rounds, arguments.steps, arguments.width, Path(folder))
    for row in rows:
        print(f"{row['step']:>9}: {row['seconds'] * 1000:.1f} ms a step, {row['cpu_seconds'] * 1000:.1f} CPU ms")
    ratio = rows[1]["seconds"] / rows[0]["seconds"]
    print(f"in train a step takes {ratio:.3f} of its time alone")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
