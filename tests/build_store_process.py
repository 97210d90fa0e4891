"""A process that builds a store in many small shards, for tests that kill it: corpus file, store directory."""

import sys
from pathlib import Path

from pipeline_data import text_task

from spanloom.pipeline.store import open_or_build
from spanloom.vocabularies.build import build

SHARD_BYTES = 1500


def build_store(corpus: str, directory: Path, **options):
    task = text_task(corpus)
    return open_or_build(task, "train", directory, build(task.vocabulary), shard_bytes=SHARD_BYTES, **options)


if __name__ == "__main__":
    print("started", flush=True)
    build_store(sys.argv[1], Path(sys.argv[2]))
    print("built", flush=True)
