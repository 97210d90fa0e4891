"""How one shard is made, or found whole where an interrupted build left it. Runs in any process."""

import functools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.durable import write_file
from spanloom.pipeline.groups import Group
from spanloom.pipeline.meta import check_file, shard_entry
from spanloom.pipeline.shards import Ragged, RaggedBuilder, read_shard, write_shard
from spanloom.pipeline.tokenization import Encoded, Encoder, encoder_of
from spanloom.settings.task import Task
from spanloom.tasks.documents import Documents
from spanloom.tasks.heldout import Split
from spanloom.tasks.rows import ROW
from spanloom.vocabularies.vocabulary import Vocabulary

_ENCODE_BYTES = 2**20
_RECHECKED_EXAMPLES = 16

ShardEntry = dict[str, Any]
"""The description of a whole shard, see `spanloom.pipeline.meta.shard_entry`."""


@dataclass(frozen=True)
class Count:
    """What was just done."""

    examples: int
    text_bytes: int
    tokens: int
    found: bool
    """Whether it was found done."""


@dataclass(frozen=True)
class ShardMaker:
    """Makes the shards of one store."""

    task: Task
    vocabulary: Vocabulary
    building: Path
    """Where the store is built, see `spanloom.pipeline.publish`."""
    split: Split = "train"
    """The part that it is of."""
    shared: bool = False
    """Whether others, on other machines too, may make the same shard at the same time."""

    @functools.cached_property
    def encoder(self) -> Encoder:
        """What makes its rows."""
        return encoder_of(self.task, self.vocabulary, self.split)

    @property
    def store_name(self) -> str:
        """A name that no other store of a run has."""
        return f"{self.task.name}/{self.split}"

    def paths(self, number: int) -> tuple[Path, Path]:
        """Where a shard and its description stand."""
        name = f"shard-{number:05d}"
        return self.building / "store" / f"{name}.arrow", self.building / "entries" / f"{name}.json"

    def make(self, group: Group, tell: Callable[[Count], object]) -> ShardEntry:
        """The description of the group's shard, which is whole on disk. Raises StorageError on a full disk."""
        text_hash = group.text_hash()
        found = self._found(group, text_hash)
        if found is not None:
            tokens = sum(column["tokens"] for name, column in found["columns"].items() if name != ROW)
            tell(Count(group.examples, group.text_bytes, tokens, found=True))
            return found
        path, entry_path = self.paths(group.number)
        entry_path.unlink(missing_ok=True)
        made = self._encode(group, tell)
        write_shard(path, made.columns, shared=self.shared)
        entry = shard_entry(
            path,
            made.columns,
            self.encoder.unknown,
            examples=group.examples,
            text_bytes=made.text_bytes if self.encoder.counts_text else group.text_bytes,
            characters=made.characters if self.encoder.counts_text else group.characters(),
            text_hash=text_hash,
        )
        if self.encoder.counts_text:
            entry |= {"first": group.first, "dropped": dict(made.dropped)}
        self.describe(entry_path, entry)
        return entry

    def describe(self, path: Path, entry: ShardEntry) -> None:
        """Writes a shard's description."""
        write_file(path, functools.partial(_write_json, entry), shared=self.shared)

    def standing(self, number: int, text_hash: str, first: int, *, checksum: bool = False) -> ShardEntry | None:
        """The description of a shard of this text that stands whole on disk, whoever made it."""
        path, entry_path = self.paths(number)
        try:
            entry: ShardEntry = json.loads(entry_path.read_bytes())
            if entry["text_sha256"] != text_hash:
                return None
            if self.encoder.numbered and entry["first"] != first:
                return None
            check_file(path, entry, checksum=checksum)
            return {**entry, "first": first} if self.encoder.counts_text else entry
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _found(self, group: Group, text_hash: str) -> ShardEntry | None:
        """The description of a whole shard of these very documents that an interrupted build left."""
        entry = self.standing(group.number, text_hash, group.first, checksum=True)
        try:
            same = entry is not None and self._gives_same_rows(read_shard(self.paths(group.number)[0]), group)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return entry if same else None

    def _gives_same_rows(self, columns: dict[str, Ragged], group: Group) -> bool:
        first = {field: texts[:_RECHECKED_EXAMPLES] for field, texts in group.documents.items()}
        again = self.encoder.encode(first, group.first).columns
        return all(
            np.array_equal(rows.offsets, columns[name].offsets[: len(rows.offsets)])
            and np.array_equal(rows.values, columns[name].values[: len(rows.values)])
            for name, rows in again.items()
        )

    def _encode(self, group: Group, tell: Callable[[Count], object]) -> Encoded:
        """Tokenizes in pieces of about a megabyte, so that lists of ids stay small and the user sees it go on."""
        pieces = group.pieces(_ENCODE_BYTES)
        if group.examples == 1:  # perhaps one of hundreds of megabytes, of which there should be no copies
            return self._encode_piece(next(pieces), group.first, tell)
        expected = group.text_bytes + group.examples  # enough for bytes, and more than other vocabularies need
        builders = {name: RaggedBuilder(dtype, expected) for name, dtype in self.encoder.dtypes.items()}
        first, text_bytes, characters, dropped = group.first, 0, 0, Counter[str]()
        for documents in pieces:
            made = self._encode_piece(documents, first, tell)
            for name, rows in made.columns.items():
                builders[name].add(rows)
            first += len(next(iter(documents.values())))
            text_bytes, characters = text_bytes + made.text_bytes, characters + made.characters
            dropped += made.dropped
        return Encoded({name: builder.finish() for name, builder in builders.items()}, text_bytes, characters, dropped)

    def _encode_piece(self, documents: Documents, first: int, tell: Callable[[Count], object]) -> Encoded:
        made = self.encoder.encode(documents, first)
        examples = len(next(iter(documents.values())))
        text_bytes = sum(sum(map(len, texts)) for texts in documents.values())
        tokens = sum(len(rows.values) for name, rows in made.columns.items() if name != ROW)
        tell(Count(examples, text_bytes, tokens, found=False))
        return made


def _write_json(data: Any, file: BufferedWriter) -> None:
    file.write(json.dumps(data).encode())
