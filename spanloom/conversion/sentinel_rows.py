"""Which ids a model of bytes was trained to take for sentinels, by the rows of its embedding and head.

The row of the sentinel that every example uses is unlike those never trained. Untrained rows keep their random values
and move together, so their distances from their mean are nearly equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.settings.vocabulary import Bytes

FIRST = {"google": 258, "huggingface": 259, "seqio": 383}
"""The first sentinel of each convention."""
IDLE = (300, 360)
"""Rows of a model of bytes, the first and the one beyond the last, that are late sentinels in every convention."""
_FEWEST_ROWS = 384
_DISTINCT = 8.0  # deviations: among 60 untrained rows the largest is about 3
_LEAD = 2.0


@dataclass(frozen=True)
class Rows:
    """A matrix with a row for each id, of which rows can be read apart."""

    shape: tuple[int, ...]
    """(ids, width)."""
    read: Callable[[int, int], np.ndarray]
    """Rows from the first to before the last, float32."""


def scores(matrices: Sequence[Rows]) -> dict[str, float] | None:
    """How unlike untrained rows the row of each convention's first sentinel is; None if the weights cannot tell.

    The score is how many (robust) standard deviations a row's distance is from theirs, in whichever matrix it is more.
    """
    usable = [found for matrix in matrices if (found := _scores(matrix)) is not None]
    return {name: max(found[name] for found in usable) for name in FIRST} if usable else None


def decide(scored: dict[str, float], extra_ids: int) -> tuple[Bytes, str]:
    """The convention that the weights show, and in words how they do; 259 upwards where none stands out."""
    best, second = sorted(scored, key=scored.__getitem__, reverse=True)[:2]
    shown = ", ".join(f"{scored[name]:.1f} for {FIRST[name]} ({name})" for name in FIRST)
    evidence = f"distance of the first sentinel's row from untrained rows, in deviations: {shown}"
    if scored[best] < _DISTINCT or scored[best] < _LEAD * scored[second]:
        return Bytes(extra_ids=extra_ids), (
            f"no convention's first sentinel stands out among the weights ({evidence}); taken as the tokenizer says, "
            "259 upwards. If the model was trained otherwise, set --task.vocabulary.sentinels google"
        )
    direction = "upwards" if best == "huggingface" else "downwards"
    sentinels = Bytes(sentinels=best, extra_ids=extra_ids)  # type: ignore[arg-type]
    return sentinels, f"sentinels are {FIRST[best]} {direction}, as the weights show ({evidence})"


def _scores(matrix: Rows) -> dict[str, float] | None:
    if len(matrix.shape) != 2 or matrix.shape[0] < _FEWEST_ROWS:
        return None
    with np.errstate(invalid="ignore"):  # NaN is met below
        idle = matrix.read(*IDLE).astype(np.float64)
        first = {convention: matrix.read(row, row + 1)[0].astype(np.float64) for convention, row in FIRST.items()}
    if not all(np.isfinite(rows).all() for rows in (idle, *first.values())):
        return None
    distances = np.linalg.norm(idle - idle.mean(axis=0), axis=1)
    typical = np.median(distances)
    # rows that are equal to the last bit have no spread: then a thousandth of their size counts as one
    floor = 1e-3 * max(typical, np.linalg.norm(idle, axis=1).mean(), 1e-30)
    deviation = max(1.4826 * np.median(np.abs(distances - typical)), floor)
    found = {}
    for convention, row in first.items():
        distance = np.linalg.norm(row - idle.mean(axis=0))
        found[convention] = float(abs(distance - typical) / deviation)
    return found
