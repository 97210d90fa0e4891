"""One training step of T5 1.1 small on this machine's CPU, beside transformers and torch in the same run.

    .venv/bin/python benchmarks/train_step.py [--rounds 9] [--dtype float32] [--output FILE.json]

Each contender is a process of its own (its peak memory is its own); they take turns, one step each, so that whatever
else the machine does meets all of them. Times are medians of the rounds after a warm-up; read the ratios. `compile` is
what a user waits for before the first step: tracing and compiling.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from spanloom.model.flops import train_flops
from spanloom.model.sizes import named
from spanloom.training.machine import processor

SHAPES = {"8x128/32": (8, 128, 32), "4x512/114": (4, 512, 114)}
CONTENDERS = ("unrolled", "scanned", "transformers")
WARM_UP = 2
Row = dict[str, Any]


class Worker:
    """A contender's process."""

    def __init__(
        self, name: str, dtype: str, shape: tuple[int, ...], *, model: str = "t5_1_1_small", platform: str = "cpu"
    ) -> None:
        script = Path(__file__).with_name("train_step_worker.py")
        argv = [sys.executable, str(script), name, dtype, *map(str, shape), *([model] if shape else [])]
        env = {**os.environ, "JAX_PLATFORMS": platform, "JAX_ENABLE_COMPILATION_CACHE": "false", "HF_HUB_OFFLINE": "1"}
        if platform == "cpu":
            env["CUDA_VISIBLE_DEVICES"] = ""
        env["OMP_WAIT_POLICY"] = "PASSIVE"  # torch's threads would spin while others hold the cores, to our advantage
        env["PYTHONPATH"] = str(script.parent.parent)
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.about = self._answer()

    def ask(self, command: str) -> Row:
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Row:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}; its error is above")
        answer: Row = json.loads(line)
        return answer


def measure(label: str, shape: tuple[int, int, int], contenders: list[str], dtype: str, rounds: int) -> list[Row]:
    """One row for each contender."""
    machine = Worker("machine", dtype, ())
    workers = {name: Worker(name, dtype, shape) for name in contenders}
    times: dict[str, list[Row]] = {name: [] for name in workers}
    peaks = []
    for number in range(WARM_UP + rounds):
        if number >= WARM_UP:
            peaks.append(machine.ask("peak")["flops_per_s"])
        for name, worker in workers.items():
            times[name].append(worker.ask("step"))
    rows = []
    flops = train_flops(named("t5_1_1_small"), *shape)
    for name, worker in workers.items():
        timed = times[name][WARM_UP:]
        seconds = statistics.median(row["seconds"] for row in timed)
        row = {
            "shape": label,
            "contender": name,
            "dtype": dtype,
            "seconds": seconds,
            "cpu_seconds": statistics.median(row["cpu_seconds"] for row in timed),
            "gflops_per_s": flops / seconds / 1e9,
            "share_of_peak": flops / seconds / max(peaks),
            "first_loss": times[name][0]["loss"],
            **worker.ask("memory"),
            **worker.about,
        }
        rows.append(row)
        worker.close()
    machine.close()
    compare(rows)
    return rows


def compare(rows: list[Row]) -> None:
    """Add ratios to transformers, where it ran."""
    base = next((row for row in rows if row["contender"] == "transformers"), None)
    for row in rows if base else []:
        assert base is not None
        row["cpu_ratio"] = row["cpu_seconds"] / base["cpu_seconds"]
        row["seconds_ratio"] = row["seconds"] / base["seconds"]


def markdown(rows: list[Row]) -> str:
    lines = [
        "| shape | contender | CPU s | ratio | s | ratio | compile s | peak GiB | GFLOP/s | of matmul peak |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        compile_s = f"{row['trace_s'] + row['compile_s']:.1f}" if "compile_s" in row else "-"
        ratios = [f"{row[key]:.2f}" if key in row else "-" for key in ("cpu_ratio", "seconds_ratio")]
        lines.append(
            f"| {row['shape']} | {row['contender']} {row['dtype']} | {row['cpu_seconds']:.2f} | {ratios[0]} | "
            f"{row['seconds']:.2f} | {ratios[1]} | {compile_s} | {row['peak_gib']:.2f} | "
            f"{row['gflops_per_s']:.0f} | {row['share_of_peak']:.0%} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--output", type=Path, help="also write the rows as JSON")
    args = parser.parse_args()
    rows: list[Row] = []
    for label in args.shapes:
        rows += measure(label, SHAPES[label], args.contenders, args.dtype, args.rounds)
    print(f"T5 1.1 small, {os.cpu_count()} cores of {processor()}, load {os.getloadavg()[0]:.1f} at the end\n")
    print(markdown(rows))
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
