"""What every objective on text is: its lengths, and a function that makes examples of equally long pieces."""

from collections.abc import Callable
from dataclasses import dataclass

from spanloom.tasks.block import Block, IntArray
from spanloom.tasks.randomness import UInt64Array


@dataclass(frozen=True)
class Denoiser:
    """An objective at work with one vocabulary."""

    raw_length: int
    """Tokens of text in one example, at most."""
    inputs_length: int
    """Width of the inputs, in tokens."""
    targets_length: int
    """Width of the targets, in tokens: what the longest ones take."""
    num_sentinels: int
    """Sentinels that an example may use for masked spans: the first ones of the vocabulary."""
    make: Callable[[IntArray, UInt64Array], Block]
    """From tokens (N, L), L up to the raw length, and keys (N,): row i depends on its own tokens and key alone."""
    longest_of: Callable[[int], tuple[int, int]]
    """Tokens of the longest inputs and targets that a piece of L tokens may give, whatever its key."""
