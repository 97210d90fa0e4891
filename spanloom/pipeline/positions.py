"""Where in its data a run stands, and which rows of a batch a host makes: all that a reader needs to go on."""

from dataclasses import dataclass
from typing import Protocol

from spanloom.pipeline.batches import Batch

Position = dict[str, int]
"""A few integers: {"examples": draws taken}, or of packed rows {"window": ..., "row": ...}; checkpoints keep it."""


@dataclass(frozen=True)
class Share:
    """The rows of every batch that one of several hosts makes: ranges in the order of the hosts."""

    host: int = 0
    """From 0."""
    hosts: int = 1
    """How many there are."""

    def rows(self, batch_size: int) -> tuple[int, int]:
        """(first, stop) rows of a batch. Raises ValueError where they cannot be divided evenly."""
        each, rest = divmod(batch_size, self.hosts)
        if rest or not 0 <= self.host < self.hosts:
            raise ValueError(
                f"{batch_size} rows cannot be divided among {self.hosts} hosts, of which this is {self.host}"
            )
        return self.host * each, (self.host + 1) * each


WHOLE = Share()
"""One host makes all rows."""


class Sizes(Protocol):
    """How long the longest examples are, and how many there are."""

    @property
    def inputs_length(self) -> int:
        """Tokens of an encoder row."""

    @property
    def targets_length(self) -> int:
        """Tokens of a decoder row."""

    @property
    def num_examples(self) -> int:
        """Examples that there are, each counted once."""

    @property
    def is_stream(self) -> bool:
        """Whether there are more than `num_examples`, and nobody knows how many."""


class TrainingRows(Sizes, Protocol):
    """What a run trains on: an endless sequence of rows, from any position on, with nothing to remember."""

    @property
    def start(self) -> Position:
        """Before the first row."""

    @property
    def examples_per_row(self) -> float:
        """Examples that share a row, on the mean."""

    def take(self, position: Position, batch_size: int, share: Share = WHOLE) -> tuple[Batch, Position]:
        """The share of the `batch_size` rows that follow a position, and the position after all of these rows.

        A pure function of seed, data settings and arguments. Raises ValueError for a position that is none, and
        where the data end before that.
        """

    def skip(self, position: Position, rows: int) -> Position:
        """The position so many rows later, without making any."""

    def first_draw(self, position: Position) -> int:
        """The first draw that whoever goes on from a position may look at: not after that of its first row."""


class OneEach:
    """Rows of one example each, so that the draws taken are the position: what data sets that are not packed share."""

    examples_per_row = 1.0
    """Rows are not shared."""

    @property
    def start(self) -> Position:
        """Before the first row."""
        return {"examples": 0}

    def take(self, position: Position, batch_size: int, share: Share = WHOLE) -> tuple[Batch, Position]:
        """See `TrainingRows`; rows as `batch` gives them."""
        first, stop = share.rows(batch_size)
        return self.batch(position["examples"] + first, stop - first), self.skip(position, batch_size)

    def skip(self, position: Position, rows: int) -> Position:
        """The position so many rows later."""
        return {"examples": position["examples"] + rows}

    def batch(self, first_example: int, batch_size: int) -> Batch:
        """Draws first_example..first_example + batch_size - 1, one a row."""
        raise NotImplementedError
