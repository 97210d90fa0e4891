"""What lies behind a spool where one shard ends and the next begins: a few integers, and the stream's own state."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """A place in a stream."""

    passes: int = 0
    """Times that it ended before, and began again."""
    rows: int = 0
    """Rows of this pass before it."""
    kept: int = 0
    """Rows for training before it, of all passes: the number of the next one."""
    state: Any = None
    """What the stream needs to go on from here, as JSON data; None where that is to read its rows again."""


@dataclass(frozen=True)
class Mark:
    """The border before a shard."""

    shard: int = 0
    """Shards before it."""
    examples: int = 0
    """Examples in them."""
    tokens: Mapping[str, int] = field(default_factory=dict)
    """Tokens in them by column."""
    chain: str = ""
    """Hash of their rows: of the chain before the last of them, and of the rows in it."""
    place: Place = Place()
    """Where the stream stands."""

    def after(self, examples: int, tokens: Mapping[str, int], rows_hash: str, place: Place) -> "Mark":
        """The border behind the shard that begins here and holds this."""
        added = {name: self.tokens.get(name, 0) + count for name, count in tokens.items()}
        return Mark(self.shard + 1, self.examples + examples, added, chained(self.chain, rows_hash), place)


def chained(chain: str, rows_hash: str) -> str:
    """The chain behind a shard, from that before it and the hash of its rows."""
    return hashlib.sha256(f"{chain} {rows_hash}".encode()).hexdigest()


def to_data(mark: Mark) -> dict[str, Any]:
    """The mark as JSON data."""
    return asdict(mark)


def from_data(data: Mapping[str, Any]) -> Mark:
    """The mark that `to_data` gave. Raises TypeError or KeyError for anything else."""
    return Mark(**{**data, "place": Place(**data["place"])})
