"""How examples become rows, as settings."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Unpacked:
    """Each example has a row of its own, padded to the longest."""


@dataclass(frozen=True)
class Packed:
    """Examples share rows, as many as fit, and none sees another (T5X's packing): for tasks with short examples.

    Rows are planned from the lengths of the examples, so that they are nearly full; batch_size counts rows.
    """

    inputs_length: int | None = None
    """Tokens of an encoder row; unset: the longest inputs of any task."""
    targets_length: int | None = None
    """Tokens of a decoder row; unset: the longest targets of any task."""
    max_segments: int | None = None
    """Most examples in a row; unset: as many as fit."""


Packing = Unpacked | Packed
