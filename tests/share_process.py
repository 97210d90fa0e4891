"""A process that makes its share of a store in many small shards, for tests that run several at once and kill them.

Its arguments: corpus file, store directory, share (1/3), workers, and after how many shards it says "paused" and waits
for a line on its standard input, or for its end; 0: never.
"""

import os
import subprocess
import sys
from pathlib import Path

from build_store_process import SHARD_BYTES, PauseOnce
from pipeline_data import text_task

from spanloom.pipeline.share import share_of
from spanloom.pipeline.shared_build import Shared, open_or_build_share
from spanloom.vocabularies.build import build


def build_share(corpus: str, directory: Path, share: str, **options) -> Shared:
    """Makes a share of both parts, in `directory`/train and /heldout."""
    task = text_task(corpus, heldout_share=0.3)
    places = {split: directory / split for split in ("train", "heldout")}
    options = {"shard_bytes": SHARD_BYTES, **options}
    return open_or_build_share(task, places, build(task.vocabulary), share_of(share), **options)


def start_share(corpus: str, directory: Path, share: str, workers: int = 1, pause_after: int = 0) -> subprocess.Popen:
    """Starts the process; once this returns it has begun, and stands still where it was to pause."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, __file__, corpus, str(directory), share, str(workers), str(pause_after)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **pipes)
    assert process.stdout is not None and process.stdout.readline() == "started\n"
    if pause_after:
        assert process.stdout.readline() == "paused\n"
    return process


if __name__ == "__main__":
    print("started", flush=True)
    pause = PauseOnce(int(sys.argv[5]))
    shared = build_share(sys.argv[1], Path(sys.argv[2]), sys.argv[3], workers=int(sys.argv[4]), progress=pause)
    print(f"whole: {' '.join(shared.stores)}; missing: {list(shared.missing)}", flush=True)
