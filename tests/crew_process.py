"""Several processes that train one tiny run together on this machine, each with one simulated device."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

RECIPE = '''"""A tiny run."""
from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.run import Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import Task, TextFiles


def recipe(text: str) -> Run:
    """Args:
        text: A file of lines.
    """
    objective = SpanCorruption(inputs_length=32, mean_span_length=3.0)
    lines = Task("lines", TextFiles((text,), heldout_share=0.05), objective=objective)
    model = Model(384, d_model=32, d_ff=64, num_heads=4, d_kv=8, num_encoder_layers=2, num_decoder_layers=2)
    return Run(
        "tiny",
        lines,
        model,
        AdamW(learning_rate=1e-2),
        Constant(warmup_steps=5),
        batch_size=8,
        steps=20,
        checkpoint=Checkpoints(every=5, keep=10),
        eval=Evaluation(every=10, max_batches=2),
        log=Logging(every=1, tensorboard=False),
    )
'''
FLAGS = "{} --xla_force_host_platform_device_count={}"
PATIENCE = 400  # seconds until processes count as stuck, on a busy machine too


class Crew:
    """The processes of one run, started at once."""

    def __init__(
        self,
        recipe: Path,
        text: Path,
        out: Path,
        processes: int,
        *flags: str,
        absent: Sequence[int] = (),
        devices: int = 1,
        flags_of: Mapping[int, Sequence[str]] = {},
    ) -> None:
        self.out = out
        self.logs = [out.with_name(f"{out.name}.{number}.log") for number in range(processes)]
        together = ["--processes", str(processes), "--coordinator", f"127.0.0.1:{two_free_ports()}"]
        self.running: dict[int, subprocess.Popen] = {}
        for number in set(range(processes)) - set(absent):
            own = [*together, "--process", str(number)] if processes > 1 else []
            words = [sys.executable, "-m", "spanloom.cli.main", "train", str(recipe), "--text", str(text)]
            environment = {
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": FLAGS.format(os.environ.get("XLA_FLAGS", ""), devices),
            }
            with self.logs[number].open("wb") as log:
                self.running[number] = subprocess.Popen(
                    [*words, "--out", str(out), *own, *flags, *flags_of.get(number, ())],
                    stdout=log,
                    stderr=log,
                    env=environment,
                )

    def said(self, number: int) -> str:
        return self.logs[number].read_text(errors="replace")

    def wait(self, timeout: float = PATIENCE) -> dict[int, int]:
        """Exit codes; whoever is stuck is killed and fails the test."""
        deadline = time.monotonic() + timeout
        try:
            return {n: process.wait(max(deadline - time.monotonic(), 0.1)) for n, process in self.running.items()}
        except subprocess.TimeoutExpired:
            self.kill(*self.running)
            raise AssertionError({number: self.said(number)[-2000:] for number in self.running}) from None

    def kill(self, *numbers: int, how: int = signal.SIGKILL) -> None:
        for number in numbers:
            self.running[number].send_signal(how)

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            alive = [number for number, process in self.running.items() if process.poll() is None]
            assert alive and time.monotonic() < deadline, {n: self.said(n)[-2000:] for n in self.running}
            time.sleep(0.01)


def two_free_ports() -> int:
    """A port that is free, and so is the next one."""
    while True:
        with socket.socket() as one, socket.socket() as next_one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                next_one.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def losses(out: Path) -> dict[tuple[str, int], float]:
    """Training and held-out losses by kind and step."""
    found = {}
    for line in (out / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] in ("train", "eval"):
            found[event["kind"], event["step"]] = event["loss" if event["kind"] == "train" else "heldout_loss"]
    return found


def steps_of(out: Path) -> int:
    """The last step that was written down."""
    return (
        max((step for kind, step in losses(out) if kind == "train"), default=0)
        if (out / "metrics.jsonl").exists()
        else 0
    )


def furthest(one: dict[tuple[str, int], float], other: dict[tuple[str, int], float]) -> float:
    """Largest relative difference of two runs' losses, which must be of the same steps."""
    assert one.keys() == other.keys()
    return max(abs(one[key] - other[key]) / one[key] for key in one)
