"""Ids of sentinels in the text itself, where a model takes them for masked spans."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from spanloom.pipeline.facts.effort import Effort, spread
from spanloom.pipeline.facts.token_columns import token_columns
from spanloom.pipeline.store import Store

_BLOCK = 2**22


@dataclass(frozen=True)
class SentinelsFound:
    """What was found."""

    tokens: int
    """Tokens looked at."""
    is_sample: bool
    """Whether there are more."""
    by_column: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """How often each id stands in a column, of those that do."""

    @property
    def count(self) -> int:
        """How many there are in all."""
        return sum(sum(ids.values()) for ids in self.by_column.values())

    @property
    def ids(self) -> dict[int, int]:
        """How often each id is found, the commonest first."""
        found: dict[int, int] = {}
        for counts in self.by_column.values():
            for id_, count in counts.items():
                found[id_] = found.get(id_, 0) + count
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def sentinels_found(store: Store, sentinels: Iterable[int], effort: Effort) -> SentinelsFound:
    """Counts these ids in a store, in some of its shards if it has many."""
    wanted = sorted(set(sentinels))
    tokens, is_sample, by_column = 0, False, {}
    for name, column in token_columns(store).items():
        chosen = spread(len(column.shards), effort.shards)
        is_sample |= len(chosen) < len(column.shards)
        counts = dict.fromkeys(wanted, 0)
        for number in chosen:
            values = column.shards[number].values
            tokens += len(values)
            for start in range(0, len(values), _BLOCK):
                found = np.bincount(values[start : start + _BLOCK], minlength=wanted[-1] + 1 if wanted else 0)
                for id_ in wanted:
                    counts[id_] += int(found[id_])
        if standing := {id_: count for id_, count in counts.items() if count}:
            by_column[name] = standing
    return SentinelsFound(tokens, is_sample, by_column)
