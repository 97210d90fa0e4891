"""Which optimizer learns most from the same text: a byte model on European novels, every optimizer at its best rate.

    .venv/bin/python benchmarks/optimizers.py [--steps 400] [--seeds 3] [--optimizers adafactor muon ...] [--dry-run]

For each optimizer the learning rate is tuned once, on runs of half the steps (of fewer none has left the plateau of
byte frequencies, and they tell nothing of rates): a factor of two apart, going on while the best one lies at the end of
those tried. Then it trains with each seed for all steps, on the same batches as the others: linear warm-up over a tenth
of the steps and half a cosine to 0, but schedule-free stays at its rate after the warm-up. Half of all bytes are hidden
in spans of 20, so that a step has as many targets as inputs; no weight decay; clipping, betas and all else as the
settings have them.

Every run that is done stands in the results file at once, and a run that was killed goes on where it stopped, so the
same command may be given again at any time. Held-out loss is over novels that nobody trained on, masked alike in all
runs of a seed. Seconds a step are the best of steps taken in turn by all optimizers, since other work disturbs.
"""

import argparse
import io
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from spanloom.model.params import declare, initialize, num_params
from spanloom.optim.build import build, learning_rate
from spanloom.pipeline.durable import write_file
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import Adafactor, AdamW, AdamWRMS, Constant, Cosine, Muon, Optimizer, ScheduleFree
from spanloom.settings.run import Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import Task, TextFiles
from spanloom.training.divergence import DivergedError
from spanloom.training.loggers import METRICS_FILE
from spanloom.training.loop import train
from spanloom.training.machine import describe_machine
from spanloom.training.progress import PlainDisplay
from spanloom.training.state import fresh_state
from spanloom.training.step import make_train_step

ROOT = Path(__file__).resolve().parent.parent
NOVELS = ROOT.parent / "shared" / "data" / "corpora" / "eltec" / "en.jsonl.gz"
MODEL = Model(
    vocab_size=384, d_model=256, d_ff=512, num_heads=4, d_kv=64, num_encoder_layers=5, num_decoder_layers=2, name="byte"
)
TINY = replace(MODEL, d_model=32, d_ff=64, num_heads=2, d_kv=16, num_encoder_layers=1, num_decoder_layers=1)
INPUTS, BATCH = 128, 8
OBJECTIVE = SpanCorruption(INPUTS, noise_density=0.5, mean_span_length=20.0)
CONTENDERS: dict[str, Optimizer] = {
    "adafactor": Adafactor(learning_rate=0.02),
    "adamw": AdamW(learning_rate=2e-3),
    "adamw-rms": AdamWRMS(learning_rate=0.02),
    "muon": Muon(learning_rate=4e-3),
    "schedule-free": ScheduleFree(learning_rate=4e-3),
}
"""The optimizers, each with the rate that is tried first."""
MOST_TRIED = 8  # rates of one optimizer

Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What is compared, and where it is kept."""

    model: Model
    text: str
    steps: int
    seeds: int
    heldout_batches: int
    results: Path
    runs: Path
    tuned: bool = True

    @property
    def described(self) -> Record:
        """What results must have in common."""
        size = {"parameters": num_params(declare(self.model)), "inputs": INPUTS, "batch": BATCH, "steps": self.steps}
        return {**size, "text": Path(self.text).name, "heldout_batches": self.heldout_batches}

    def run(self, optimizer: Optimizer, seed: int, steps: int) -> Run:
        """One training run."""
        warmup = max(steps // 10, 1)
        flat = isinstance(optimizer, ScheduleFree)
        return Run(
            name="optimizers",
            task=Task("text", TextFiles((self.text,), heldout_share=0.05), objective=OBJECTIVE),
            model=self.model,
            optimizer=optimizer,
            schedule=Constant(warmup) if flat else Cosine(warmup),
            batch_size=BATCH,
            steps=steps,
            seed=seed,
            checkpoint=Checkpoints(every=100, keep=1, keep_best=0),
            eval=Evaluation(every=steps, max_batches=self.heldout_batches, batch_size=4 * BATCH),
            log=Logging(every=1, tensorboard=False),
        )


class Results:
    """The file of all runs that are done. It is whole at any time."""

    def __init__(self, path: Path, described: Record) -> None:
        self.path = path
        self.content: Record = {"described": described, "machine": describe_machine(), "runs": [], "speed": {}}
        if path.exists():
            self.content = json.loads(path.read_text())
        if self.content["described"] != described:
            raise SystemExit(f"{path} holds other runs ({self.content['described']}): name another file with --results")

    def add(self, record: Record) -> None:
        """One more run that is done."""
        self.content["runs"].append(record)
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = (json.dumps(self.content, indent=1) + "\n").encode()
        write_file(self.path, lambda file: file.write(content))

    def find(self, **asked: Any) -> list[Record]:
        """Runs with these values, in the order they were made."""
        return [run for run in self.content["runs"] if all(run[name] == value for name, value in asked.items())]


def trained(plan: Plan, results: Results, name: str, rate: float, seed: int, steps: int) -> Record:
    """The record of one run, from the file or by training."""
    if found := results.find(optimizer=name, learning_rate=rate, seed=seed, steps=steps):
        return found[0]
    directory = plan.runs / f"{name}-{rate:g}-{seed}-{steps}"
    run = plan.run(replace(CONTENDERS[name], learning_rate=rate), seed, steps)
    try:
        if not train(run, directory, display=PlainDisplay(io.StringIO())):
            raise SystemExit("stopped; the same command goes on")
        record = measured(directory)
    except DivergedError as error:
        print(f"{name} at {rate:g}: {error}", flush=True)
        record = {"heldout_loss": None}
    results.add({"optimizer": name, "learning_rate": rate, "seed": seed, "steps": steps, **record})
    shutil.rmtree(directory, ignore_errors=True)
    jax.clear_caches()
    return results.content["runs"][-1]


def measured(directory: Path) -> Record:
    """Held-out loss at the end, the mean training loss of the last tenth, and the median of seconds a step."""
    events = [json.loads(line) for line in (directory / METRICS_FILE).read_text().splitlines()]
    losses = [event["loss"] for event in events if event["kind"] == "train"]
    seconds = [event["seconds_per_step"] for event in events if event["kind"] == "train"]
    (heldout,) = [event for event in events if event["kind"] == "eval"]
    return {
        "heldout_loss": heldout["heldout_loss"],
        "heldout_accuracy": heldout["heldout_accuracy"],
        "train_loss": statistics.fmean(losses[-max(len(losses) // 10, 1) :]),
        "seconds_per_step": statistics.median(seconds),
    }


def tune(plan: Plan, results: Results, name: str) -> float:
    """The learning rate with the lowest held-out loss on short runs."""
    first, steps = CONTENDERS[name].learning_rate, max(plan.steps // 2, 1)
    if not plan.tuned:
        return first
    losses: dict[int, float] = {}

    def loss(power: int) -> float:
        if power not in losses:
            record = trained(plan, results, name, float(f"{first * 2.0**power:.3g}"), 0, steps)
            losses[power] = float("inf") if record["heldout_loss"] is None else record["heldout_loss"]
            print(f"{name:<14} rate {record['learning_rate']:<8g} {steps} steps: {losses[power]:.4f}", flush=True)
        return losses[power]

    best = min((0, 1, -1), key=loss)
    while len(losses) < MOST_TRIED and best in (min(losses), max(losses)):
        best = min((best, best + (1 if best == max(losses) else -1)), key=loss)
    return float(f"{first * 2.0**best:.3g}")


def speeds(plan: Plan, names: Sequence[str], rounds: int = 12) -> Record:
    """Seconds of a step and bytes of the optimizer's state a weight, of each optimizer."""
    specs, random = declare(plan.model), np.random.default_rng(0)
    inputs, targets = (random.integers(3, 259, (BATCH, length), dtype=np.int32) for length in (INPUTS, INPUTS))
    batch = {"encoder_input_tokens": inputs, "decoder_target_tokens": targets, "decoder_input_tokens": targets}
    steppers: dict[str, tuple[Callable[..., Any], Any]] = {}
    found: Record = {}
    for name in names:
        run = plan.run(CONTENDERS[name], 0, plan.steps).resolve()
        optimizer = build(run.optimizer, run.schedule, specs)
        rate = learning_rate(run.optimizer, run.schedule)
        state = fresh_state(jax.jit(lambda key: initialize(specs, key))(jax.random.key(0)), optimizer)
        memory = sum(leaf.nbytes for leaf in jax.tree.leaves(state.opt_state)) / num_params(specs)
        found[name] = {"seconds_per_step": float("inf"), "bytes_per_weight": memory}
        steppers[name] = make_train_step(run.model, run.loss, optimizer, rate), state
    for _ in range(rounds + 1):  # the first compiles
        for name, (step, state) in steppers.items():
            begun = time.perf_counter()
            steppers[name] = step, jax.block_until_ready(step(state, batch))[0]
            seconds = time.perf_counter() - begun
            found[name]["seconds_per_step"] = min(found[name]["seconds_per_step"], seconds)
    return found


def table(plan: Plan, results: Results) -> Iterator[str]:
    """The README's table, of the optimizers whose runs are all done; the lowest held-out loss first."""
    rows = []
    for name, speed in results.content["speed"].items():
        done = [run for run in results.find(optimizer=name, steps=plan.steps) if run["heldout_loss"] is not None]
        if len(done) >= plan.seeds:
            losses = [run["heldout_loss"] for run in done]
            spread = statistics.stdev(losses) if len(losses) > 1 else 0.0
            rows.append((statistics.fmean(losses), spread, done[0]["learning_rate"], name, speed))
    yield "| optimizer | learning rate | held-out loss | seconds a step | optimizer, bytes a weight |"
    yield "| --- | --- | --- | --- | --- |"
    for mean, spread, rate, name, speed in sorted(rows, key=lambda row: row[0]):
        shown = f"{speed['seconds_per_step']:.3f} | {speed['bytes_per_weight']:.2f}"
        yield f"| {name} | {rate:g} | {mean:.4f} +- {spread:.4f} | {shown} |"


def compare(plan: Plan, names: Sequence[str]) -> None:
    """Everything that is not yet in the results file, then the table."""
    results = Results(plan.results, plan.described)
    for name in names:
        best = tune(plan, results, name)
        for seed in range(plan.seeds):
            record = trained(plan, results, name, best, seed, plan.steps)
            print(f"{name:<14} rate {best:<8g} seed {seed}: held-out loss {record['heldout_loss']}", flush=True)
    if missing := [name for name in names if name not in results.content["speed"]]:
        results.content["speed"] |= speeds(plan, missing if results.content["speed"] else names)
        results.save()
    print("\n".join(table(plan, results)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400, help="of a whole run; the tuning runs have half")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--optimizers", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--text", default=str(NOVELS), help="a text file, or a glob")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results" / "optimizers-2-cores.json")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "optimizers", help="of the runs under way")
    parser.add_argument("--dry-run", action="store_true", help="a tiny model, no tuning, nothing is kept")
    args = parser.parse_args()
    plan = Plan(MODEL, args.text, args.steps, args.seeds, 40, args.results.resolve(), args.runs.resolve())
    print(f"{num_params(declare(plan.model)) / 1e6:.1f} million parameters; {describe_machine()}", flush=True)
    if not args.dry_run:
        compare(plan, args.optimizers)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        tiny = replace(plan, model=TINY, heldout_batches=1, tuned=False)
        compare(replace(tiny, results=Path(folder, "results.json"), runs=Path(folder, "runs")), args.optimizers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
