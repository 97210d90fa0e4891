"""The training part of a task whose rows are a stream."""

from typing import Any

from spanloom.pipeline.dataset import Dataset
from spanloom.pipeline.spool.examples import SpoolExamples
from spanloom.pipeline.spool.order import SpoolOrder
from spanloom.pipeline.spool.shards import SpooledStore, content_of, spooled
from spanloom.pipeline.spool.spool import Spool


class StreamDataset(Dataset):
    """Numbered examples of a stream, as batches. Every answer follows from arguments and what the stream gives."""

    is_stream = True

    def __init__(self, spool: Spool, *, seed: int):
        self.spool = spool
        """The shards, and what makes more."""
        self.seed = seed
        self.examples = SpoolExamples(spool)
        self._order = SpoolOrder(spool, seed, spool.task.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _stream_dataset, (self.spool, self.seed)

    @property
    def store(self) -> SpooledStore:
        """The shards that are on disk now."""
        return spooled(self.spool.index)

    @property
    def content(self) -> str:
        """What is learnt from, see `spanloom.pipeline.spool.shards.content_of`."""
        self.spool.index.refresh()
        return content_of(self.spool.index)


def _stream_dataset(spool: Spool, seed: int) -> StreamDataset:
    return StreamDataset(spool, seed=seed)
