"""The randomness of one example: numbers that follow from (seed, task, epoch, example) alone.

A generator like NumPy's in its names, but its stream never changes between releases, and making one costs nothing. It
counts: draw k of a key is splitmix64's k-th output (`spanloom.tasks.randomness.stream64`).
"""

from collections.abc import MutableSequence, Sequence
from itertools import accumulate
from statistics import NormalDist
from typing import Any, TypeVar, overload

import numpy as np

T = TypeVar("T")

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_NORMAL = NormalDist()
_LARGEST = 2**53


class ExampleRng:
    """Random numbers of one example; what a preprocessor's parameter `rng` gets.

    `size` asks for an array of so many numbers, and gives those that single calls would have given.
    """

    def __init__(self, key: int):
        """`key`: any whole number; other keys give other numbers."""
        self._state = key & _MASK

    def random(self, size: int | None = None) -> Any:
        """Uniform from 0 to below 1, float (float64); all multiples of 2**-53 are equally likely."""
        return self._some(size, np.float64, lambda: (self._bits() >> 11) / _LARGEST)

    def integers(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        """Uniform whole numbers (int64) from low to below high; of one bound: from 0 to below it.

        Raises ValueError where there is none.
        """
        first, stop = (0, low) if high is None else (low, high)
        if stop <= first:
            raise ValueError(f"integers from {first} to below {stop}: there is none")
        return self._some(size, np.int64, lambda: first + self._below(stop - first))

    def normal(self, mean: float = 0.0, deviation: float = 1.0, size: int | None = None) -> Any:
        """Normally distributed, float (float64)."""
        return self._some(size, np.float64, lambda: mean + deviation * self._standard_normal())

    def choice(self, items: Sequence[T], weights: Sequence[float] | None = None) -> T:
        """One of the items, with equal or the given chances. Raises ValueError for none, or weights that fit not."""
        if len(items) == 0:
            raise ValueError("choice: there are no items")
        if weights is None:
            return items[self._below(len(items))]
        if len(weights) != len(items) or min(weights) < 0 or not sum(weights) > 0:
            raise ValueError(f"choice: {len(items)} items need as many weights, none below 0 and not all 0")
        bounds = list(accumulate(weights))
        place = self.random() * bounds[-1]
        return items[next(i for i, bound in enumerate(bounds) if place < bound)]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """`count` different items in random order. Raises ValueError where there are fewer."""
        if not 0 <= count <= len(items):
            raise ValueError(f"sample: {count} of {len(items)} items")
        places = list(range(len(items)))
        self._shuffle(places, count)
        return [items[place] for place in places[:count]]

    @overload
    def shuffle(self, items: np.ndarray) -> None: ...
    @overload
    def shuffle(self, items: MutableSequence[Any]) -> None: ...
    def shuffle(self, items: Any) -> None:
        """Puts a list, or an array along its first axis, in random order, in place."""
        places = list(range(len(items)))
        self._shuffle(places, len(places))
        items[:] = items[places] if isinstance(items, np.ndarray) else [items[place] for place in places]

    def _shuffle(self, places: list[int], count: int) -> None:
        """The first `count` of the places, at random (Fisher and Yates)."""
        for i in range(min(count, len(places) - 1)):
            j = i + self._below(len(places) - i)
            places[i], places[j] = places[j], places[i]

    def _some(self, size: int | None, dtype: Any, draw: Any) -> Any:
        return draw() if size is None else np.array([draw() for _ in range(size)], dtype)

    def _below(self, bound: int) -> int:
        """Uniform below a bound: the high word of a product (Lemire 2019), uneven by bound / 2**64 at most."""
        if bound > _MASK:
            raise ValueError("integers: the range is wider than 64 bits")
        return (self._bits() * bound) >> 64

    def _standard_normal(self) -> float:
        """By the inverse of the distribution function, at the middles of 2**53 intervals."""
        return _NORMAL.inv_cdf(((self._bits() >> 11) + 0.5) / _LARGEST)

    def _bits(self) -> int:
        """The next 64 bits."""
        self._state = (self._state + _GAMMA) & _MASK
        bits = self._state
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
        return bits ^ (bits >> 31)
