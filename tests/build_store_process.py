"""A process that builds a store in many small shards, for tests that kill it: corpus file, store directory, workers."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline_data import text_task

from spanloom.pipeline.store import open_or_build
from spanloom.vocabularies.build import build

SHARD_BYTES = 1500


def build_store(corpus: str, directory: Path, **options):
    task = text_task(corpus)
    return open_or_build(task, "train", directory, build(task.vocabulary), shard_bytes=SHARD_BYTES, **options)


def start_process(corpus: str, directory: Path, workers: int = 1, **options) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, __file__, corpus, str(directory), str(workers)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **options)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


if __name__ == "__main__":
    print("started", flush=True)
    build_store(sys.argv[1], Path(sys.argv[2]), workers=int(sys.argv[3]))
    print("built", flush=True)
