"""A training run that takes seconds, in this process or in one of its own that may be killed.

python tests/tiny_training.py TEXT_FILE DIRECTORY STEPS [PLACE]

PLACE is where the process stands still (build, save, or the number of a step), having made the file DIRECTORY/held,
until its standard input ends or a signal does it.
"""

import dataclasses
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.settings.model import Model
from spanloom.settings.objectives import SpanCorruption
from spanloom.settings.optimizer import AdamW, Constant
from spanloom.settings.run import Checkpoints, Evaluation, Logging, Run
from spanloom.settings.task import Task, TextFiles

MODEL = Model(
    vocab_size=384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1
)
WORDS = "the a model learns to fill masked spans of bytes and every run goes on where it stopped"
HELD = "held"
PATIENCE = 300  # seconds until a process counts as stuck, on a busy machine too


def tiny_run(text: Path, steps: int, **changes: Any) -> Run:
    run = Run(
        name="tiny",
        task=Task(
            "lines",
            TextFiles((str(text),), heldout_share=0.05),
            objective=SpanCorruption(inputs_length=32, mean_span_length=3.0),
        ),
        model=MODEL,
        optimizer=AdamW(learning_rate=1e-2),
        schedule=Constant(warmup_steps=5),
        batch_size=4,
        steps=steps,
        checkpoint=Checkpoints(every=10, keep=2, keep_best=1),
        eval=Evaluation(every=15, max_batches=2),
        log=Logging(every=1),
    )
    return dataclasses.replace(run, **changes)


def train(run: Run, directory: Path, **options: Any) -> str:
    """Trains to the last step in this process; what was said."""
    from spanloom.training import loop
    from spanloom.training.progress import PlainDisplay

    stream = io.StringIO()
    assert loop.train(run, directory, display=PlainDisplay(stream), **options)
    return stream.getvalue()


def write_text(path: Path, lines: int = 300, seed: int = 0) -> Path:
    words = WORDS.split(" ")
    draw = random.Random(seed)
    path.write_text("".join(" ".join(draw.choices(words, k=draw.randint(3, 14))) + "\n" for _ in range(lines)))
    return path


def write_vocabulary(path: Path, pieces: int = 40) -> Path:
    """A SentencePiece model of the words above."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([WORDS] * 20),
        model_writer=model,
        vocab_size=pieces,
        hard_vocab_limit=False,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
    )
    path.write_bytes(model.getvalue())
    return path


def spawn(
    text: Path, directory: Path, steps: int, environment: dict[str, str] | None = None, hold: str | int = ""
) -> subprocess.Popen:
    """A process that trains; with `hold`, it stands still at that place when this returns."""
    command = [sys.executable, __file__, str(text), str(directory), str(steps), str(hold)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / HELD).unlink(missing_ok=True)
    with (directory / "process.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env={**os.environ, **(environment or {})}
        )
    if hold:
        assert wait_until(process, (directory / HELD).exists), (directory / "process.log").read_text()[-4000:]
    return process


def wait_until(process: subprocess.Popen, happened: Callable[[], bool], timeout: float = PATIENCE) -> bool:
    """Whether it happened before the process ended or the time was up. Looks every millisecond."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if happened():
            return True
        if process.poll() is not None:
            return happened()
        time.sleep(0.001)
    return False


def kill(process: subprocess.Popen, number: int = signal.SIGKILL) -> int:
    process.send_signal(number)
    return _let_go(process)


def _let_go(process: subprocess.Popen) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(PATIENCE)


def finish(process: subprocess.Popen, directory: Path) -> None:
    code = _let_go(process)
    assert code == 0, f"exit code {code}\n{(directory / 'process.log').read_text()[-4000:]}"


def events(directory: Path) -> list[dict[str, Any]]:
    path = directory / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def losses(directory: Path) -> dict[tuple[Any, ...], float]:
    """Every training loss by kind and step, every held-out one of several tasks also by task; none may come twice."""
    result: dict[tuple[Any, ...], float] = {}
    tasks = {event["task"] for event in events(directory) if event["kind"] == "eval"}
    for event in events(directory):
        if event["kind"] in ("train", "eval"):
            named = (event["task"],) if event["kind"] == "eval" and len(tasks) > 1 else ()
            key = (event["kind"], event["step"], *named)
            assert key not in result, f"{key} comes twice in {directory}"
            result[key] = event["loss" if event["kind"] == "train" else "heldout_loss"]
    return result


def last_step(directory: Path) -> int:
    """Step of the last training line, 0 while there is none. The last line may be half written."""
    path = directory / "metrics.jsonl"
    if not path.exists():
        return 0
    found = 0
    for line in path.read_bytes().splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        found = max(found, event["step"] if event["kind"] == "train" else 0)
    return found


def same_arrays(first: Any, second: Any) -> bool:
    import jax

    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def _train_held(run: Run, directory: Path, place: str) -> bool:
    from spanloom.pipeline.build_progress import BuildProgress
    from spanloom.training import checkpoints
    from spanloom.training.loop import train
    from spanloom.training.progress import Pace, PlainDisplay

    def reached(here: str) -> None:
        if here == place and not (directory / HELD).exists():
            (directory / HELD).touch()
            sys.stdin.readline()

    class Held(PlainDisplay):
        def building(self, progress: BuildProgress) -> None:
            reached("build")

        def advance(self, pace: Pace, log_line: bool) -> None:
            super().advance(pace, log_line)
            reached(str(pace.step))

    seal = checkpoints.seal

    def held_seal(partial: Path) -> int:
        reached("save")
        return seal(partial)

    checkpoints.seal = held_seal
    return train(run, directory, display=Held(sys.stdout))


if __name__ == "__main__":
    finished = _train_held(tiny_run(Path(sys.argv[1]), int(sys.argv[3])), Path(sys.argv[2]), sys.argv[4])
    print("finished" if finished else "interrupted", flush=True)
