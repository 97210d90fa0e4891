"""What a run writes while it trains: metrics.jsonl, the source of truth, and TensorBoard's event files beside it."""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from spanloom.pipeline.durable import explain_full_disk, json_object, write_file

METRICS_FILE = "metrics.jsonl"
MEASURED_KINDS = ("train", "eval", "fills", "parameters")
"""Events that describe a step, and belong to it; others tell what happened to the run."""
_BLOCK = 2**16


class Logger(Protocol):
    """Takes one event after the other."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Write one event; `step` counts finished updates."""

    def close(self) -> None:
        """Write out what is buffered."""


class MetricsFile:
    """metrics.jsonl: one JSON object a line, flushed as it is written.

    Every line has `kind`, `time`, in seconds since 1970, and `step`, the number of updates done: the training line of
    step 1 describes the first update, so its loss is that of the initial weights. Steps never go back, and (kind, task,
    step) never comes twice, also after resumes. Numbers are written in full precision: a float32 read back from the
    file is the same to the last bit.
    """

    def __init__(
        self, path: Path, resume_step: int = 0, *, writes: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        """Opens `path` for appending, cut back to `resume_step` (to nothing for a run that begins).

        Without `writes`, for all but one of several processes, which wrote it before, all is as if it were written.
        """
        self.path = path
        self._step, self._clock = resume_step, clock
        self._keys = cut_back(path, resume_step) if writes else _keys_at(path, resume_step)
        self._file = (path if writes else Path(os.devnull)).open("a", encoding="utf-8")

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Append a line. Raises ValueError if its (kind, task, step) was written before, or a later step was."""
        key = (kind, values.get("task"))
        if step < self._step or (step == self._step and key in self._keys):
            raise ValueError(
                f"metrics.jsonl is at step {self._step} and cannot take the line {(*key, step)}: steps never go back, "
                "and a (kind, task, step) comes once"
            )
        written = {"kind": kind, "step": step, "time": round(self._clock(), 3)}
        line = {**written, **{name: _plain(value) for name, value in values.items()}}
        with explain_full_disk(self.path):
            self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file.flush()
        self._keys = self._keys | {key} if step == self._step else {key}
        self._step = step

    def has(self, kind: str, task: str | None, step: int) -> bool:
        """Whether a line of this kind, task and step is there. Only the last step is known: asking for one before it
        raises ValueError.
        """
        if step < self._step:
            raise ValueError(f"metrics.jsonl is at step {self._step}; what it has of step {step} is not kept in memory")
        return step == self._step and (kind, task) in self._keys

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _keys_at(path: Path, step: int) -> set[tuple[str, Any]]:
    """(kind, task) of the lines of `step` that a resume there keeps."""
    if step == 0 or not path.exists():
        return set()
    with path.open("rb") as file:
        keys = filter(None, map(_key, _tail(file, step)[1].splitlines()))
        return {key[:2] for key in keys if key[2] == step and key[0] in MEASURED_KINDS}


def cut_back(path: Path, step: int) -> set[tuple[str, Any]]:
    """Drop the lines that a resume at `step` will write again, and a line torn by a kill.

    Returns (kind, task) of the lines of `step` that stay. Lines that describe a step (MEASURED_KINDS) up to and with
    `step` stay, of other kinds those before it; nothing stays at step 0. Steps in the file never go back, so it is read
    from its end to the last line before `step`: a long run costs no more than a short one. A kill in here loses no line
    that stays.
    """
    if step == 0 or not path.exists():
        write_file(path, lambda file: None)
        return set()
    with path.open("r+b") as file:
        start, tail = _tail(file, step)
        kept: dict[tuple[str, Any], bytes] = {}
        for line in tail.splitlines():
            if (key := _key(line)) and (key[2] < step or (key[2] == step and key[0] in MEASURED_KINDS)):
                kept.setdefault(key[:2], line + b"\n")
        content = b"".join(kept.values())
        if not tail.startswith(content):
            file.seek(start)
            file.write(content)
            file.flush()
        file.truncate(start + len(content))
        os.fsync(file.fileno())
    return {key for key, line in kept.items() if _key(line) == (*key, step)}


def _tail(file: BinaryIO, step: int) -> tuple[int, bytes]:
    """The end of the file behind the last whole line that comes before `step`: (offset, content)."""
    start = file.seek(0, os.SEEK_END)
    tail, seen = b"", 0  # the last `seen` bytes of the tail were looked at
    while start:
        size = min(_BLOCK, start)
        start -= size
        file.seek(start)
        tail = file.read(size) + tail
        end = tail.rfind(b"\n", 0, len(tail) - seen) + 1
        while end:
            begin = tail.rfind(b"\n", 0, end - 1) + 1
            if not begin and start:
                break  # its beginning is in the block before
            if (key := _key(tail[begin:end])) and key[2] < step:
                return start + end, tail[end:]
            end, seen = begin, len(tail) - begin
    return 0, tail


def _key(line: bytes) -> tuple[str, Any, int] | None:
    """(kind, task, step) of a line; None for one torn by a kill, which came after the last checkpoint."""
    event = _event(line)
    return (event["kind"], event.get("task"), event["step"]) if event else None


def read_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a metrics.jsonl, but for damaged lines; none if there is no such file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        yield from filter(None, map(_event, file))


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None for one that no logger wrote, or not to its end."""
    event = json_object(line)
    if event is None or type(event.get("step")) is not int:
        return None
    return event if isinstance(event.get("kind"), str) and isinstance(event.get("task", ""), str) else None


def scalars(kind: str, values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an event that describes a step, named kind/name, kind/task/name or kind/name/part."""
    if kind not in MEASURED_KINDS:
        return {}
    prefix = f"{kind}/{values['task']}" if "task" in values else kind
    return dict(_numbers(prefix, values))


def _numbers(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _numbers(f"{prefix}/{name}", value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}/{name}", value


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
        """Write every number of an event that describes a step (see `scalars`)."""
        for name, value in scalars(kind, values).items():
            self._writer.add_scalar(name, value, step)

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
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
