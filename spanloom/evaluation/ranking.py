"""Rank evaluation: each option of an example is scored as a target, and the one with the best score is the answer.

The table of all scores is checked row by row, as an example counted twice or not at all would move the result in
silence. The numbers are `metrics.rank_classification`'s.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from spanloom.evaluation.metrics.numbers import Numbers
from spanloom.evaluation.metrics.rank_classification import rank_classification
from spanloom.evaluation.options import RankingError

Key = tuple[int, int]
"""Number of the example, number of the option."""


@dataclass(frozen=True)
class Scored:
    """One option with its score."""

    example: int
    option: int
    options: int
    """How many the example has; 0: not known."""
    is_correct: bool
    weight: float
    length: int
    """Target tokens, end of sequence included."""
    score: float
    """Summed log-probability of these."""

    @property
    def key(self) -> Key:
        """Example and option."""
        return self.example, self.option


def in_order(scored: Iterable[Scored]) -> list[Scored]:
    """Options in order of example and option. Raises RankingError for those that are there twice, for those that are
    missing, and for a score that is no number.
    """
    rows = sorted(scored, key=lambda row: row.key)
    if lost := next((row for row in rows if math.isnan(row.score)), None):
        raise RankingError(f"example {lost.example}, option {lost.option}: its score is not a number")
    if twice := [row.key for row, following in pairwise(rows) if row.key == following.key]:
        raise RankingError(
            f"{_options(len(twice))} scored more than once, the first of them option {twice[0][1]} of example "
            f"{twice[0][0]}: do the data hold an example twice?"
        )
    groups = groupby(rows, key=lambda row: row.example)
    if missing := [key for _, group in groups for key in _gaps(list(group))]:
        raise RankingError(
            f"{_options(len(missing))} not scored, the first of them option {missing[0][1]} of example "
            f"{missing[0][0]}: do the data hold all options of each example?"
        )
    return rows


def ranked(rows: Sequence[Scored], num_classes: int | None = None, normalise: bool = False) -> Numbers:
    """What `rank_classification` says of scored options: `accuracy`, with `num_classes` F1 and curves beside it.

    `normalise`: scores are divided by their lengths. Raises ValueError as it does, and RankingError where no example
    has a right option.
    """
    if rows and not any(row.is_correct for row in rows):
        raise RankingError(
            "no example has a right option: are labels hidden in this split, or do targets read otherwise than choices?"
        )
    return rank_classification(*as_targets(rows), num_classes=num_classes, normalize_by_target_length=normalise)


def as_targets(rows: Sequence[Scored]) -> tuple[list[Any], list[float]]:
    """Targets and scores as metrics of scores take them: (idx, is_correct, weight, length), and a number for each."""
    return [(row.key, row.is_correct, row.weight, row.length) for row in rows], [row.score for row in rows]


def without_answer(rows: Sequence[Scored]) -> list[int]:
    """Examples of which no option is right: they count as wrong, which is to be said."""
    return sorted({row.example for row in rows} - {row.example for row in rows if row.is_correct})


def _gaps(group: list[Scored]) -> list[Key]:
    """Options that an example has and that are not there. Raises RankingError for rows that do not agree."""
    sizes = {row.options for row in group}
    if len(sizes) > 1:
        raise RankingError(
            f"example {group[0].example} has {' and '.join(map(str, sorted(sizes)))} options: other data?"
        )
    size = sizes.pop() or group[-1].option + 1
    if group[-1].option >= size:
        raise RankingError(f"example {group[0].example}, which has {size} options, has an option {group[-1].option}")
    there = {row.option for row in group}
    return [(group[0].example, option) for option in range(size) if option not in there]


def _options(count: int) -> str:
    return "1 option" if count == 1 else f"{count:,} options"
