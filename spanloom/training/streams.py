"""What training does for the streams that it reads: shards are made ahead of it, and dropped behind its checkpoints."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spanloom.pipeline.data import Data
from spanloom.pipeline.spool.needed import drop_unneeded, streams_of
from spanloom.pipeline.spool.writer import writing
from spanloom.settings.run_layout import steps_in
from spanloom.training.checkpoint_paths import CheckpointError
from spanloom.training.facts import read_facts


@contextlib.contextmanager
def ahead_of(data: Data, checkpoint: Path | None, say: Callable[[str], object]) -> Iterator[None]:
    """Has a process for each stream make shards ahead of the run, which goes on from `checkpoint` if it has one."""
    if checkpoint is not None:
        keep_needed(data, [checkpoint.parent / str(step) for step in steps_in(checkpoint.parent)])
    with contextlib.ExitStack() as stack:
        for part in streams_of(data).values():
            spool = part.spool
            stack.enter_context(writing(spool.task, spool.vocabulary, spool.index.directory, say))
        yield


def keep_needed(data: Data, checkpoints: Sequence[Path]) -> None:
    """Deletes the shards of streams that none of these checkpoints needs; where one cannot be read, nothing."""
    if streams_of(data):
        with contextlib.suppress(CheckpointError):
            drop_unneeded(data, [read_facts(path).position for path in checkpoints])
