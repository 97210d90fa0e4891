"""Which rows of an embedding, or of a head, look as if nothing had trained them.

Rows that no vocabulary uses (a model has 32,128 where its vocabulary has 32,100 ids) show what untrained ones look
like: random values about a place to which all of them moved together. A row stands out if it is much nearer to that
place or farther from it, lies aside of it in the direction of ordinary rows, or in that of the first of the asked-for
rows, as trained sentinels are alike. Where ordinary rows do not stand out either, the weights cannot tell.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spanloom.conversion.sentinel_rows import IDLE
from spanloom.settings.vocabulary import Bytes, Vocabulary
from spanloom.vocabularies.build import build

Gather = Callable[[np.ndarray], np.ndarray]
"""From ids to the rows of a matrix, float."""
Scores = Callable[[np.ndarray], np.ndarray]
"""From rows to how unlike idle ones each is, in standard deviations."""

_FEWEST = 6  # rows that show what untrained ones look like; mT5 has 12
_STANDS_OUT = 5.0  # deviations in three ways together; of an untrained row hardly ever more than 4
_SHARE = 0.75  # of ordinary rows that must stand out
_ALIKE = 1e-3  # rows that are equal to the last bit have no spread: then this part of their size counts as one


@dataclass(frozen=True)
class Known:
    """Ids whose rows are known to be of a kind."""

    idle: Sequence[int]
    """Never used."""
    ordinary: Sequence[Sequence[int]]
    """Groups, of one of which most were used often."""


def known_of_bytes(used: Sequence[int]) -> Known:
    """Those of a model of bytes; `used`: ids that may have been sentinels."""
    latin, others = (32, *range(97, 123)), range(128, 192)  # the bytes that text of other scripts goes on with
    return Known(sorted(set(range(*IDLE)) - set(used)), [[byte + 3 for byte in group] for group in (latin, others)])


def known_of_pieces(size: int, rows: int, sentinels: Sequence[int], used: Sequence[int]) -> Known:
    """Those of a SentencePiece vocabulary of `size` ids in a matrix of `rows`.

    Frequent pieces come first there, behind 256 for bytes in some (mT5).
    """
    taken = set(sentinels) | set(used)
    pieces = [one for one in range(260 if size > 1000 else 3, min(size, 1000 + len(taken))) if one not in taken]
    return Known(sorted(set(range(size, rows)) - set(used)), [pieces[:: max(1, len(pieces) // 64)]])


def known_of(vocabulary: Vocabulary, rows: int, used: Sequence[int]) -> Known:
    """Those of a model with so many rows, of which `used` may have been sentinels."""
    if isinstance(vocabulary, Bytes):
        return known_of_bytes(used)
    built = build(vocabulary)
    return known_of_pieces(built.size, rows, built.sentinels, used)


def untrained(matrices: Sequence[Gather], known: Known, ids: Sequence[int]) -> tuple[int, ...] | None:
    """Those of `ids`, in their order, whose rows look untrained in every matrix; None where the weights cannot tell."""
    if len(known.idle) < _FEWEST or min(map(len, known.ordinary)) < 2 or not ids:
        return None
    found = [out for gather in matrices if (out := _standing_out(gather, known, ids)) is not None]
    if not found:
        return None
    return tuple(one for one, out in zip(ids, np.any(found, axis=0), strict=True) if not out)


def _standing_out(gather: Gather, known: Known, ids: Sequence[int]) -> np.ndarray | None:
    parts = [known.idle, ids, *known.ordinary]
    with np.errstate(invalid="ignore"):  # NaN is met below
        rows = gather(np.concatenate(parts)).astype(np.float64)
    if not np.isfinite(rows).all():
        return None
    idle, asked, *groups = np.split(rows, np.cumsum([len(part) for part in parts])[:-1])
    measure = _Measure(idle, float(np.linalg.norm(rows, axis=1).mean()))
    best, aside = max((_used(group, measure) for group in groups), key=lambda found: found[0])
    if best < _SHARE:
        return None
    like_first = measure.direction(asked[0])(asked)
    like_first[0] = measure.direction(asked[1])(asked[:1])[0] if len(asked) > 1 else 0
    return _together([measure.distance(asked), aside(asked), like_first]) > _STANDS_OUT


def _used(group: np.ndarray, measure: "_Measure") -> tuple[float, Scores]:
    """The share of rows in a group that stand out, and scores in its direction.

    That is not taken from the very rows that are held against it: chance alone would make them lie in it.
    """
    aside = measure.direction(group[::2].mean(axis=0))
    return float(np.mean(_together([measure.distance(group[1::2]), aside(group[1::2])]) > _STANDS_OUT)), aside


def _together(scores: Sequence[np.ndarray]) -> np.ndarray:
    """Little in each of several ways is much in all of them."""
    return np.linalg.norm(np.stack(scores), axis=0)


class _Measure:
    """How unlike idle rows others are, in standard deviations of theirs."""

    def __init__(self, idle: np.ndarray, size: float) -> None:
        count, self._width = idle.shape
        self._idle, self._centre = idle, idle.mean(axis=0)
        # each against the mean of the others, as the rows that are measured have no part in it either
        distances = np.linalg.norm(idle - self._centre, axis=1) * count / (count - 1)
        self._floor = max(_ALIKE * size, 1e-30)
        self._typical = max(float(np.median(distances)), self._floor)
        spread = 1.4826 * float(np.median(np.abs(distances - np.median(distances))))
        self._deviation = max(spread, self._typical / np.sqrt(2 * self._width), self._floor)

    def distance(self, rows: np.ndarray) -> np.ndarray:
        """By how far they are from the middle of the idle ones."""
        return np.abs(np.linalg.norm(rows - self._centre, axis=1) - self._typical) / self._deviation

    def direction(self, towards: np.ndarray) -> Scores:
        """By how far they lie aside in one direction.

        Half of the idle rows give the direction, the other half its zero: else chance, which few rows do not even out,
        would put every row that is not among them aside.
        """
        line = towards - self._idle[::2].mean(axis=0)
        line = line / max(float(np.linalg.norm(line)), 1e-30)
        zero = self._idle[1::2]
        own = float(np.std((zero - zero.mean(axis=0)) @ line, ddof=1))
        deviation = max(own, self._typical / np.sqrt(self._width))
        return lambda rows: np.abs((rows - zero.mean(axis=0)) @ line) / deviation
