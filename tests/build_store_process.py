"""A process that builds a store in many small shards, for tests that kill it.

Its arguments: corpus file, store directory, workers, and after how many shards it says "paused" and waits for a line on
its standard input, or for its end; 0: never.
"""

import os
import subprocess
import sys
from pathlib import Path

from pipeline_data import open_or_build, text_task

from spanloom.pipeline.build_progress import BuildProgress
from spanloom.vocabularies.build import build

SHARD_BYTES = 1500
HANGS = 600  # seconds after which a process that does not end is an error


def build_store(corpus: str, directory: Path, **options):
    task = text_task(corpus)
    return open_or_build(task, "train", directory, build(task.vocabulary), shard_bytes=SHARD_BYTES, **options)


def start_process(corpus: str, directory: Path, workers: int = 1, pause_after: int = 0, **options) -> subprocess.Popen:
    """Starts the process; once this returns it has begun, and stands still where it was to pause."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, __file__, corpus, str(directory), str(workers), str(pause_after)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **pipes, **options)
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    if pause_after:
        assert process.stdout.readline() == "paused\n"
    return process


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


class PauseOnce:
    """Takes the progress of a build and holds it up."""

    def __init__(self, after: int):
        self._after = after

    def __call__(self, progress: BuildProgress) -> None:
        if self._after and progress.shards >= self._after:
            self._after = 0
            print("paused", flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    print("started", flush=True)
    build_store(sys.argv[1], Path(sys.argv[2]), workers=int(sys.argv[3]), progress=PauseOnce(int(sys.argv[4])))
    print("built", flush=True)
