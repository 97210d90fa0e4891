"""Batches made ahead of time, in a thread or in processes, by google/grain, which decides nothing about their order."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import numpy as np

from spanloom.pipeline.batches import Batch
from spanloom.pipeline.positions import WHOLE, Position, Share, TrainingRows

T = TypeVar("T")


class StepReader:
    """The batch of any step from the one at which a run goes on, and the position after it.

    Called with rising steps, as one of several processes that take turns does, it plans what lies between and makes
    nothing of it.
    """

    def __init__(
        self,
        rows: TrainingRows,
        position: Position,
        first_step: int,
        batch_size: int,
        shares: Sequence[Share] = (WHOLE,),
    ):
        """Of every batch the shares that this host makes, one after another."""
        self._rows = rows
        self._begin = first_step, position
        self._batch_size = batch_size
        self._shares = shares
        self._next = self._begin

    def __call__(self, step: int) -> tuple[Batch, Position]:
        """The batch that step number `step` + 1 trains on."""
        at, position = self._next if self._next[0] <= step else self._begin
        position = self._rows.skip(position, (step - at) * self._batch_size) if step > at else position
        parts = [self._rows.take(position, self._batch_size, share) for share in self._shares]
        self._next = step + 1, parts[0][1]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part, _ in parts]) for name in parts[0][0]}, parts[0][1]


def _begin_worker(worker: int, workers: int) -> None:
    """A process that makes batches ends with the one that it makes them for, however that ends, and not by Ctrl-C,
    which is for that one to answer.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def prefetch(
    make: Callable[[int], T], first_step: int, last_step: int, ahead: int = 2, workers: int = 0
) -> Generator[T, None, None]:
    """make(first_step), ..., make(last_step - 1), up to `ahead` of them made before they are asked for.

    With `workers`, processes take turns, each `ahead` by so many; what they make is the same. An exception in `make` is
    raised where its batch is asked for, with its own traceback. Leaving the loop, by any exception too, closes thread
    and processes: use it in a `for`, or call `close()`.
    """
    import grain
    from absl import flags

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=max(ahead, 1))
    made = grain.MapDataset.range(first_step, last_step).map(make).to_iter_dataset(options)
    if workers:
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()  # grain's worker processes read their flags, of which a command has none
        processes = grain.MultiprocessingOptions(workers, per_worker_buffer_size=max(ahead, 1))
        made = made.mp_prefetch(processes, worker_init_fn=_begin_worker)
    batches = iter(made)
    try:
        yield from batches
    finally:
        batches.close()
