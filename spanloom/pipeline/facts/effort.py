"""How much of large data is looked at: enough to know, in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """The most that is looked at of one task; what is more is sampled, and said to be."""

    examples: int
    """Examples made."""
    rows: int
    """Documents or pairs compared."""
    shards: int
    """Shards of a store read."""


def effort_for(tasks: int) -> Effort:
    """What goes for each of so many tasks."""
    return Effort(
        examples=min(1_000, max(64, 20_000 // tasks)),
        rows=min(100_000, max(2_000, 1_000_000 // tasks)),
        shards=min(32, max(1, 128 // tasks)),
    )


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread."""
    chosen = min(count, most)
    return [number * count // chosen for number in range(chosen)]
