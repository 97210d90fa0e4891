"""What of its streams a run still needs: all from the oldest checkpoint on that is kept."""

from collections.abc import Iterable, Mapping
from typing import Any

from spanloom.pipeline.data import Data
from spanloom.pipeline.eras import plan_from
from spanloom.pipeline.mixed import MixedDataset
from spanloom.pipeline.packed import PackedRows
from spanloom.pipeline.positions import Position
from spanloom.pipeline.spool.dataset import StreamDataset
from spanloom.pipeline.spool.opening import standing


def streams_of(data: Data) -> dict[str, StreamDataset]:
    """The training parts that are streams, by name of the task."""
    return {one.task.name: one.train for one in data.tasks if isinstance(one.train, StreamDataset)}


def first_needed(data: Data, position: Position) -> dict[str, int]:
    """The first example of each stream that whoever goes on from a position may draw, by name of the task.

    Draw i of a stream is of the shard that example i is in, so that this is the number of a draw, too.
    """
    rows = data.train
    first = rows.first_draw(position)
    draws = rows.draws if isinstance(rows, PackedRows) else rows
    if not isinstance(draws, MixedDataset):
        return dict.fromkeys(streams_of(data), first)
    counts = dict(zip(plan_from(data.eras)[0], draws.plan.counts(first).tolist(), strict=True))
    return {name: counts[name] for name in streams_of(data)}


def standings(data: Data, position: Position) -> dict[str, Any]:
    """Where the streams stand for one who goes on from a position: a few integers and their own state, by task."""
    needed = first_needed(data, position)
    for part in streams_of(data).values():
        part.spool.index.refresh()  # loader processes may have gone far ahead of what is known here
    return {name: standing(part.spool.index, needed[name]) for name, part in streams_of(data).items()}


def drop_unneeded(data: Data, positions: Iterable[Position]) -> None:
    """Deletes the shards of streams that nobody needs who goes on from one of these positions."""
    needed: list[Mapping[str, int]] = [first_needed(data, position) for position in positions]
    for name, part in streams_of(data).items() if needed else ():
        part.spool.index.refresh()
        part.spool.index.drop(min(one[name] for one in needed))
