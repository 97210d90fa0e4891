"""How the cost of a run grows: a step with batch, length and layers; checkpoints and batches with the steps done.

    .venv/bin/python benchmarks/growth.py [--rounds 9] [--width 256] [--json FILE]

A step is measured at sizes that double, the others fixed: CPU seconds (median of the rounds, sizes in turn, so that a
busy machine slows all of them alike) and the exponent between neighbours, log2 of their ratio: 1 is linear, and less is
what does not grow. Attention's square shows in the length. Layers are measured scanned, with the time to compile, which
a scan keeps flat. Then what saving a checkpoint and making a batch take at step 10 and at step 10,000,000.
"""

import argparse
import functools
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from spanloom.model.params import declare
from spanloom.optim.build import build, learning_rate
from spanloom.pipeline.data import open_data
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import Adafactor, Rsqrt
from spanloom.settings.run import Loss, Run
from spanloom.settings.task import Task, TextFiles
from spanloom.settings.weights import Weights
from spanloom.training.checkpoints import CheckpointWriter, restore
from spanloom.training.facts import Facts
from spanloom.training.machine import describe_machine
from spanloom.training.state import TrainState, drawn_weights, fresh_state
from spanloom.training.step import make_train_step

FAR = 10_000_000
AXES = {"batch": (4, 8, 16), "length": (128, 256, 512), "layers": (2, 4, 8)}


def model_of(width: int, layers: int) -> Model:
    """A ByT5 of that width and so many layers in each stack."""
    return Model(384, width, 2 * width, 4, width // 4, num_encoder_layers=layers, num_decoder_layers=layers)


class Step:
    """A compiled training step, its state and a batch of made-up bytes."""

    def __init__(self, model: Model, batch: int, length: int) -> None:
        specs, optimizer = declare(model), build(Adafactor(), Rsqrt(), declare(model))
        self.state = fresh_state(drawn_weights(specs, Weights(), jax.random.key(0)), optimizer)
        random = np.random.default_rng(0)
        inputs, targets = (random.integers(3, 259, (batch, n), dtype=np.int32) for n in (length, length // 4))
        rows = {"encoder_input_tokens": inputs, "decoder_target_tokens": targets, "decoder_input_tokens": targets}
        self.rows = jax.device_put(rows)
        jitted = make_train_step(model, Loss(), optimizer, learning_rate(Adafactor(), Rsqrt()))
        begun = time.process_time()
        self.compiled = jitted.lower(self.state, self.rows).compile()
        self.compile_seconds = time.process_time() - begun

    def __call__(self) -> None:
        self.state, metrics = self.compiled(self.state, self.rows)
        jax.block_until_ready(metrics)


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of all threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def steps_along(axis: str, rounds: int, width: int) -> list[dict[str, float]]:
    """A line for each size of one axis."""
    base = {"batch": 8, "length": 128, "layers": 2}
    made = []
    for size in AXES[axis]:
        at = {**base, axis: size}
        made.append(Step(model_of(width, at["layers"]), at["batch"], at["length"]))
    for step in made:
        step()
    times = [[cpu_seconds(step) for step in made] for _ in range(rounds)]
    seconds = [statistics.median(column) for column in zip(*times, strict=True)]
    lines = []
    for i, (size, step) in enumerate(zip(AXES[axis], made, strict=True)):
        exponent = math.log2(seconds[i] / seconds[i - 1]) if i else None
        line = {
            "size": size,
            "cpu_seconds": seconds[i],
            "exponent": exponent,
            "compile_cpu_seconds": step.compile_seconds,
        }
        lines.append(line)
    return lines


def at_step(step: int, rounds: int, width: int, folder: Path) -> dict[str, float]:
    """CPU seconds of a save and of a restore at a step, and of a batch at the place that it has reached."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("a line of text that is learnt again and again\n" * 2000)
    task = Task("lines", TextFiles((str(text),), heldout_share=0), objective=SpanCorruption(128))
    run = Run("growth", task, model_of(width, 2), steps=FAR + 1, batch_size=16).resolve()
    data = open_data(run, folder)
    position = {"examples": step * run.batch_size}
    specs = declare(run.model)
    fresh = fresh_state(drawn_weights(specs, Weights(), jax.random.key(0)), build(run.optimizer, run.schedule, specs))
    state = TrainState(fresh.step + step, fresh.params, fresh.opt_state)
    saves, restores, batches = [], [], []
    for number in range(rounds):
        out = folder / f"{step}-{number}"
        writer = CheckpointWriter(out, run.checkpoint, {})
        facts = Facts(step, position, run, describe_machine())

        def save(writer: CheckpointWriter = writer, facts: Facts = facts) -> None:
            writer.save(state, facts)
            writer.wait()

        saves.append(cpu_seconds(save))
        writer.close()
        restores.append(cpu_seconds(functools.partial(restore, out / str(step), fresh.opt_state)))
        batches.append(cpu_seconds(lambda: data.train.take(position, run.batch_size)))
    median = statistics.median
    return {"step": step, "save": median(saves), "restore": median(restores), "batch": median(batches)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="Repeats; medians are shown.")
    parser.add_argument("--width", type=int, default=256, help="d_model.")
    parser.add_argument("--json", help="Also write the figures to this file.")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    for axis in AXES:
        found[axis] = steps_along(axis, arguments.rounds, arguments.width)
        for line in found[axis]:
            exponent = line["exponent"]
            grown = "" if exponent is None else f"  x{2**exponent:.2f}, exponent {exponent:.2f}"
            compiled = f"compiled in {line['compile_cpu_seconds']:.1f}"
            print(f"{axis:>7} {line['size']:>4}: {line['cpu_seconds']:.3f} CPU s a step, {compiled}{grown}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        found["steps"] = [at_step(step, arguments.rounds, arguments.width, Path(folder)) for step in (10, FAR)]
    for line in found["steps"]:
        what = ", ".join(f"{name} {line[name]:.4f}" for name in ("save", "restore", "batch"))
        print(f"at step {line['step']:>10,}: CPU s: {what}", flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
