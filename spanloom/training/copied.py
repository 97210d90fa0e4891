"""A copy of what a run writes about itself in a bucket, for `spanloom watch s3://...` anywhere: --log.copy-to.

ADDRESS/metrics/0000000000000000.jsonl   metrics.jsonl from this byte on, up to where the next segment begins
        run.json, commands.jsonl, results.json, stores/TASK/PART/meta.json, ...
        copied.json                      which run this is the copy of

Objects cannot be appended to: the last segment is written anew until it is long, then another one begins. Whatever is
interrupted, the segments in order are the beginning of the run's metrics.jsonl, or of what it was before the run went
back to a checkpoint, and the next start mends that. Checkpoints stay where they are.
"""

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from spanloom.pipeline.durable import json_object, write_file
from spanloom.settings.run import Run
from spanloom.settings.run_layout import COPIED, RUN_FILE, SEGMENTS, segment_name, segment_start
from spanloom.tasks.read_report import ReadReport
from spanloom.tasks.remote_files import forget, names_in, system_of
from spanloom.training.loggers import METRICS_FILE

SECONDS = 60.0
"""Between one copy and the next."""
SEGMENT = 4 * 2**20
"""Bytes after which another segment begins."""
_LARGEST = 64 * 2**20  # what a report reads of any other file
_OTHERS = (RUN_FILE, "commands.jsonl", "results*.json", "forgetting.*", "stores/*/*/meta.json", "eval/results.jsonl")


class CopyError(RuntimeError):
    """The copy cannot be made; the message names cause and fix."""


class Copied:
    """A logger that copies files: what is written lies in them. None of it is waited for but the last copy."""

    def __init__(self, directory: Path, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Reads and writes nothing yet. Raises BadInputError for an address of a file system that is not installed."""
        self._system, root = system_of(address)
        self._directory, self._address, self._root = directory, address.rstrip("/"), root.rstrip("/")
        self._clock, self._last = clock, float("-inf")
        self._thread: threading.Thread | None = None
        self._problem: Exception | None = None
        self._start: int | None = None
        """Where the last segment begins; None until it is known what is there."""
        self._sent: dict[str, object] = {}
        """Of what was copied, what tells whether it has changed."""

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Copy what is new, from time to time, in a thread. Raises what the one before met."""
        problem, self._problem = self._problem, None
        if self._clock() - self._last >= SECONDS and not (self._thread and self._thread.is_alive()):
            self._last = self._clock()
            self._thread = threading.Thread(target=self._try, daemon=True)
            self._thread.start()
        if problem:
            raise problem

    def close(self) -> None:
        """Copy what is left. Raises CopyError, or what the file system raises."""
        if self._thread:
            self._thread.join()
        self._send()

    def _try(self) -> None:
        try:
            self._send()
        except Exception as error:  # each library has errors of its own
            self._problem = error

    def _send(self) -> None:
        if self._start is None:
            self._claim()
            self._start = self._agree()
        self._send_metrics(self._start)
        for pattern in _OTHERS:
            for path in sorted(self._directory.glob(pattern)):
                self._send_file(path)

    def _claim(self) -> None:
        """Note whose copy is at the address. Raises CopyError where it is another run's."""
        own = self._directory / COPIED
        known = json_object(own.read_bytes()) if own.is_file() else None
        if known is None:
            known = {"run": uuid.uuid4().hex}
            write_file(own, lambda file: file.write(json.dumps(known).encode()))
        there = self._read(COPIED)
        if there is None and self._read(RUN_FILE) is None:
            self._put(COPIED, json.dumps(known).encode())
        elif there is None or (json_object(there) or {}).get("run") != known.get("run"):
            raise CopyError(f"{self._address} holds another run: give another --log.copy-to, or remove what is there")

    def _agree(self) -> int:
        """Remove segments of what the run has gone back from; where the one begins from which on all is sent anew."""
        metrics = self._directory / METRICS_FILE
        size = metrics.stat().st_size if metrics.is_file() else 0
        starts = sorted(start for name in self._names() if (start := segment_start(name)) is not None)
        for start in reversed(starts):
            segment = self._read(f"{SEGMENTS}/{segment_name(start)}") if start < size else None
            if segment and segment == _bytes_of(metrics, start, len(segment)):
                return start
            # The last first: what a kill leaves has no gap. The first is written over, never missed.
            if start:
                self._system.rm_file(f"{self._root}/{SEGMENTS}/{segment_name(start)}")
        return 0

    def _send_metrics(self, start: int) -> None:
        for begin, content in segments(self._directory / METRICS_FILE, start):
            if self._sent.get(SEGMENTS) != (begin, len(content)):
                self._put(f"{SEGMENTS}/{segment_name(begin)}", content)
                self._sent[SEGMENTS] = begin, len(content)
            self._start = begin

    def _send_file(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):  # replaced at this very moment: the next copy has it
            about = path.stat()
            name, version = path.relative_to(self._directory).as_posix(), (about.st_mtime_ns, about.st_size)
            if self._sent.get(name) != version and about.st_size <= _LARGEST:
                self._put(name, path.read_bytes())
                self._sent[name] = version

    def _names(self) -> list[str]:
        forget(self._address)
        try:
            return names_in(f"{self._address}/{SEGMENTS}", ReadReport())
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def _put(self, name: str, content: bytes) -> None:
        self._system.pipe_file(f"{self._root}/{name}", content)


def segments(metrics: Path, start: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a file from a byte on: where each segment begins, and what is in it. None is empty; all but the
    last have SEGMENT bytes or a line more.
    """
    while True:
        content = _bytes_of(metrics, start, SEGMENT)
        if len(content) == SEGMENT:
            content += _rest_of_line(metrics, start + SEGMENT)
        else:
            content = content[: content.rfind(b"\n") + 1]  # a line may be half written
        if not content or not content.endswith(b"\n"):
            return
        yield start, content
        if len(content) < SEGMENT:
            return
        start += len(content)


def _bytes_of(path: Path, start: int, size: int) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size)


def _rest_of_line(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start - 1)
        return b"" if file.read(1) == b"\n" else file.readline()


def copy_closed(run: Run, directory: Path, warn: Callable[[str], object]) -> None:
    """Copy what a finished run has written since its last step; what keeps it from that is said, and ends nothing."""
    if run.log.copy_to is None:
        return
    try:
        Copied(directory, run.log.copy_to).close()
    except Exception as error:
        warn(f"not copied to {run.log.copy_to}: {error}")
