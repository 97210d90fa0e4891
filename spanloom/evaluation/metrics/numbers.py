"""What a metric returns: its numbers, and how they come out of examples that are drawn anew.

Most metrics are a function of sums over examples (how many are right; n-grams in common). Those keep what they sum, so
that a bootstrap is one product of matrices, and no text is looked at twice.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Again = Callable[[FloatArray], Mapping[str, FloatArray]]
"""From how often each unit is drawn, (B, N) float64, to each number, (B,)."""


class Numbers(dict[str, float]):
    """Numbers by their names, with what a bootstrap needs."""

    def __init__(self, units: int | Sequence[int], again: Again):
        """The numbers that `again` gives where each unit is drawn once.

        `units`: how many there are to draw (examples, or groups of those that belong together); several: as many in
        each of several parts, one after another, that are drawn from apart.
        """
        self.parts = (units,) if isinstance(units, int) else tuple(units)
        self.again = again
        with np.errstate(invalid="ignore"):
            super().__init__({name: float(one[0]) for name, one in again(np.ones((1, sum(self.parts)))).items()})

    def with_more(self, other: "Numbers") -> "Numbers":
        """These numbers and others of the same units."""
        assert self.parts == other.parts
        return Numbers(self.parts, lambda counts: {**self.again(counts), **other.again(counts)})


def of_sums(statistics_NxK: npt.ArrayLike, numbers: Callable[[FloatArray], Mapping[str, FloatArray]]) -> Numbers:
    """A metric that is a function of sums over its examples.

    `numbers` takes sums, (B, K) float64, and gives each number, (B,).
    """
    statistics = np.asarray(statistics_NxK, np.float64)
    return Numbers(len(statistics), lambda counts_BxN: numbers(counts_BxN @ statistics))


def means(**values_N: npt.ArrayLike) -> Numbers:
    """Means over examples, times 100."""
    columns = np.stack([np.asarray(one, np.float64) for one in values_N.values()], axis=1)
    with_count = np.concatenate([columns, np.ones((len(columns), 1))], axis=1)

    def numbers(sums: FloatArray) -> dict[str, FloatArray]:
        return {name: 100 * sums[:, k] / sums[:, -1] for k, name in enumerate(values_N)}

    return of_sums(with_count, numbers)


def ratio(above: FloatArray, below: FloatArray, otherwise: float = 0.0) -> FloatArray:
    """above / below, and `otherwise` where that is not above 0."""
    return np.divide(above, below, out=np.full(np.shape(above), otherwise), where=below > 0)


def check_pairs(targets: Sequence[Any], predictions: Sequence[Any], what: str = "predictions") -> None:
    """Raises ValueError for sets that are empty or of different sizes."""
    if len(targets) != len(predictions):
        raise ValueError(f"{len(targets):,} targets and {len(predictions):,} {what}: there must be one of each")
    if not len(targets):
        raise ValueError("there are no examples to measure; hold some out of training")


def same(target: Any, prediction: Any) -> bool:
    """Whether both are equal, arrays in all of their elements."""
    if isinstance(target, np.ndarray) or isinstance(prediction, np.ndarray):
        return bool(np.array_equal(target, prediction))
    return bool(target == prediction)


def numbered(keys: Iterable[Any]) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """The number of each key's group, (N,) int64, and the groups in order of appearance. Lists count as tuples."""
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(hashable(key), len(numbers)) for key in keys]
    return np.asarray(found, np.int64), list(numbers)


def hashable(key: Any) -> Hashable:
    """A key as a dict takes it: lists and arrays as tuples."""
    if isinstance(key, list | tuple | np.ndarray):
        return tuple(map(hashable, key))
    return key.item() if isinstance(key, np.generic) else key


def field(value: Any, key: str, what: str) -> Any:
    """One field of what a postprocessing gave. Raises ValueError that names it where it is none of a dict."""
    if not isinstance(value, Mapping) or key not in value:
        raise ValueError(f"{what} must be dicts with {key!r}, as a postprocess makes them; one is {value!r:.80}")
    return value[key]
