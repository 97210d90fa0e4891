"""Batches made ahead of time in a background thread, by google/grain, which decides nothing about their order."""

from collections.abc import Callable, Generator

from spanloom.pipeline.batches import Batch


def prefetch(
    batch_fn: Callable[[int], Batch], first_step: int, last_step: int, ahead: int = 2
) -> Generator[Batch, None, None]:
    """batch_fn(first_step), ..., batch_fn(last_step - 1), up to `ahead` of them made before they are asked for.

    An exception in `batch_fn` is raised where the batch is asked for, with its own traceback. Leaving the loop, by
    any exception too, closes the thread: use it in a `for`, or call `close()`.
    """
    import grain

    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=max(ahead, 1))
    steps = grain.MapDataset.range(first_step, last_step)
    batches = iter(steps.map(batch_fn).to_iter_dataset(options))
    try:
        yield from batches
    finally:
        batches.close()
