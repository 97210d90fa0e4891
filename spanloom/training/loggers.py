"""What a run writes while it trains: metrics.jsonl, the source of truth, and TensorBoard's event files beside it."""

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from spanloom.pipeline.durable import explain_full_disk, write_file

METRICS_FILE = "metrics.jsonl"
TENSORBOARD = "tensorboard"
SCALAR_KINDS = ("train", "eval")


class Logger(Protocol):
    """Takes one event after the other."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one event; `step` counts finished updates."""

    def close(self) -> None:
        """Write out what is buffered."""


class MetricsFile:
    """metrics.jsonl: one JSON object a line, flushed as it is written.

    Every line has `kind` and `step`, the number of updates done: the training line of step 1 describes the first
    update, so its loss is that of the initial weights. (kind, task, step) never comes twice, also after resumes.
    Numbers are written in full precision: a float32 read back from the file is the same to the last bit.
    """

    def __init__(self, path: Path, resume_step: int = 0) -> None:
        """Opens `path` for appending, cut back to `resume_step` (to nothing for a run that begins)."""
        self.path = path
        self._lines = cut_back(path, resume_step)
        self._file = path.open("a", encoding="utf-8")

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a line. Raises ValueError if its (kind, task, step) was written before."""
        key = (kind, values.get("task"), step)
        if key in self._lines:
            raise ValueError(f"metrics.jsonl already has a line {key}: a (kind, task, step) comes once")
        self._lines.add(key)
        line = {"kind": kind, "step": step, **{name: _plain(value) for name, value in values.items()}}
        with explain_full_disk(self.path):
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()

    def has(self, kind: str, task: str | None, step: int) -> bool:
        """Whether a line of this kind, task and step is there."""
        return (kind, task, step) in self._lines

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def cut_back(path: Path, step: int) -> set[tuple[str, Any, int]]:
    """Drop the lines that a resume at `step` will write again, and a line torn by a kill; returns what stays, as keys.

    Training and evaluation lines up to and with `step` stay, of other kinds those before it; nothing stays at step 0.
    The file is replaced in one move.
    """
    kept: dict[tuple[str, Any, int], str] = {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            event = json.loads(line)
            key = (event["kind"], event.get("task"), event["step"])
        except (ValueError, KeyError, TypeError):
            continue  # torn by a kill, and so after the last checkpoint
        if step and (key[2] < step or (key[2] == step and key[0] in SCALAR_KINDS)):
            kept.setdefault(key, line.decode() + "\n")
    write_file(path, lambda file: file.write("".join(kept.values()).encode()))
    return set(kept)


class TensorBoard:
    """TensorBoard event files, written without TensorFlow; `tensorboard --logdir OUT` shows them."""

    def __init__(self, directory: Path, resume_step: int = 0) -> None:
        """Opens a new event file in `directory`; on resume, TensorBoard hides what was logged after `resume_step`."""
        from tensorboardX import SummaryWriter  # slow to import

        self._writer = SummaryWriter(
            str(directory),
            purge_step=resume_step + 1 if resume_step else 0,  # hides events with step >= it
            filename_suffix=f".{time.time_ns()}",  # names count seconds; a second file in one would replace the first
            flush_secs=10,
        )

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write every number of a training or evaluation event as a scalar named kind/name, or kind/task/name."""
        if kind not in SCALAR_KINDS:
            return
        prefix = f"{kind}/{values['task']}" if "task" in values else kind
        for name, value in values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._writer.add_scalar(f"{prefix}/{name}", value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class Loggers:
    """Several loggers as one, closed together."""

    def __init__(self, *loggers: Logger) -> None:
        self._loggers = loggers

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one event to each."""
        for logger in self._loggers:
            logger.write(kind, step, values)

    def close(self) -> None:
        """Close each."""
        for logger in self._loggers:
            logger.close()


def _plain(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null, so that every line can be read by any JSON reader."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
