"""Rank evaluation: each option of an example is scored as a target, and the one with the best score is the answer.

Scores in batches, and one table of all of them, whoever made them: several processes each score
a share, and a job that was stopped goes on with what is not scored yet. The table is checked row by row, as an example
counted twice or not at all would move the result in silence. The numbers are `metrics.rank_classification`'s.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice, pairwise
from typing import Any

import numpy as np

from spanloom.evaluation.metrics.numbers import Numbers
from spanloom.evaluation.metrics.rank_classification import rank_classification
from spanloom.evaluation.options import Option, Pair, RankingError

Score = Callable[[list[Pair]], Any]
"""From pairs to the summed log-probability of each one's targets, (n,) float32."""
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

    def to_line(self) -> str:
        """As a line of JSON; the score comes back to the last bit."""
        return json.dumps(asdict(self))


def scored_of(line: str) -> Scored:
    """What `to_line` wrote. Raises RankingError for any other line."""
    try:
        values = json.loads(line)
        return Scored(**{field.name: values[field.name] for field in fields(Scored)})
    except (ValueError, KeyError, TypeError) as error:
        raise RankingError(f"no line of scores ({type(error).__name__}: {error}): {line!r:.80}") from error


def score_options(
    options: Iterable[Option],
    pair: Callable[[Option], Pair],
    score: Score,
    batch_size: int = 64,
    done: Collection[Key] = (),
) -> Iterator[Scored]:
    """Each option with its score, in batches; those of `done` are passed over.

    `pair` makes the ids of an option (`options.Pairs`). Raises RankingError for scores that are fewer or
    more than were asked for, or no numbers, and for a target without tokens.
    """
    waiting = (option for option in options if (option.example, option.option) not in done)
    while batch := list(islice(waiting, batch_size)):
        pairs = [pair(option) for option in batch]
        for option, (_, target) in zip(batch, pairs, strict=True):
            if not len(target):
                raise RankingError(f"example {option.example}, option {option.option}: its target has no tokens")
        scores = np.asarray(score(pairs), np.float32)
        if scores.shape != (len(batch),):
            raise RankingError(f"scores of shape {scores.shape} for {len(batch)} options")
        for option, (_, target), value in zip(batch, pairs, scores.tolist(), strict=True):
            yield _scored(option, len(target), value)


def merged(shards: Iterable[Iterable[Scored]], examples: int | None = None, options: int | None = None) -> list[Scored]:
    """All scores, whichever process made which and in whatever order, in order of example and option.

    `examples`: how many there must be, numbered from 0, `options`: how many rows in all; None: not known. Raises
    RankingError for options that are there twice, and for options and examples that are missing.
    """
    rows = sorted((row for shard in shards for row in shard), key=lambda row: row.key)
    twice = [row.key for row, following in pairwise(rows) if row.key == following.key]
    if twice:
        raise RankingError(
            f"{_options(len(twice))} scored more than once, the first of them option {twice[0][1]} of example "
            f"{twice[0][0]}: the shards overlap"
        )
    missing = [key for group in _by_example(rows) for key in _gaps(group)]
    if missing:
        raise RankingError(
            f"{_options(len(missing))} not scored, the first of them option {missing[0][1]} of example "
            f"{missing[0][0]}: a shard is missing or not finished"
        )
    there = {row.example for row in rows}
    if examples is not None and there != (wanted := set(range(examples))):
        if foreign := sorted(there - wanted):
            raise RankingError(f"example {foreign[0]} is scored, and there are only {examples:,}: other data?")
        lost = sorted(wanted - there)
        what = f"example of {examples:,}" if len(lost) == 1 else f"examples of {examples:,}"
        raise RankingError(
            f"{len(lost):,} {what} not scored, the first of them example {lost[0]}: a shard is missing or not finished"
        )
    if options is not None and len(rows) != options:
        raise RankingError(f"{len(rows):,} options scored, and not {options:,}: a shard is missing or not finished")
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


def answers(rows: Sequence[Scored], normalise: bool = False) -> dict[int, int]:
    """The option that wins, by example; of equal scores the first."""
    found: dict[int, int] = {}
    for group in _by_example(sorted(rows, key=lambda row: row.key)):
        best = max(group, key=lambda row: row.score / row.length if normalise else row.score)
        found[best.example] = best.option
    return found


def without_answer(rows: Sequence[Scored]) -> list[int]:
    """Examples of which no option is right: they count as wrong, which is to be said."""
    return sorted({row.example for row in rows} - {row.example for row in rows if row.is_correct})


def _scored(option: Option, length: int, value: float) -> Scored:
    if math.isnan(value):
        raise RankingError(f"example {option.example}, option {option.option}: its score is not a number")
    return Scored(option.example, option.option, option.options, option.is_correct, option.weight, length, value)


def _by_example(rows: Sequence[Scored]) -> Iterator[list[Scored]]:
    """The rows of each example; they are in order."""
    group: list[Scored] = []
    for row in rows:
        if group and group[-1].example != row.example:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


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
