"""The files of a spool, and the index of every shard that it ever had.

    stores/TASK/train.spool/
      spool.json                    what decides its rows, how the stream is divided, and the mark that it begins with
      index.jsonl                   a line for every shard: the mark behind it, see `spanloom.pipeline.spool.marks`
      store/shard-00017.arrow       shards of a store, those that checkpoints may need and a few ahead
      entries/shard-00017.json      their descriptions
      probes.json                   rows and what they gave, which show a change that no hash of code would
      wanted                        the shard that is waited for: whoever makes them makes this one, and a few ahead
      needed                        the first example that a checkpoint needs

A line is written once its shard is whole; what a kill tears off is cut off by the next who writes. Any number of
processes read; those that write hold the lock `train.spool.lock`.
"""

import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.pipeline.durable import explain_full_disk, write_file
from spanloom.pipeline.shards import DamagedStoreError
from spanloom.pipeline.spool.marks import Mark, from_data, to_data

HEADER = "spool.json"
LINES = "index.jsonl"
PROBES = "probes.json"
_WANTED = "wanted"
_NEEDED = "needed"
_RECENT = 1024  # marks
_LINE = re.compile(rb'\{"shard":(\d+),"examples":(\d+),"tokens":(\{[^{}]*\}),"chain":"[0-9a-f]{64}","place":\{.*\}\}\n')
_SHARD = re.compile(r"shard-(\d+)\.arrow")


class SpoolIndex:
    """The shards of a spool that there are, and were."""

    def __init__(self, directory: Path) -> None:
        """Raises FileNotFoundError where there is no spool, DamagedStoreError where it is not what was written."""
        self.directory = directory
        try:
            self.header: dict[str, Any] = json.loads((directory / HEADER).read_bytes())
            self.base = from_data(self.header["base"])
            """The mark it begins with: not that of the stream, if it goes on from a checkpoint of another directory."""
            self.bound = int(self.header["bound"])
            """Rows whose hash is below it are held out of training."""
            self.fingerprint: dict[str, Any] = self.header["fingerprint"]
            """What decides its rows."""
            self.dtypes: dict[str, str] = self.header["dtypes"]
            """Columns of its shards."""
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedStoreError(f"{directory / HEADER} cannot be read: {error}") from error
        self._lines: list[bytes] = []
        self._examples = [self.base.examples]
        self._tokens = {name: [self.base.tokens.get(name, 0)] for name in self.dtypes}
        self._arrays: dict[str, np.ndarray] = {}
        self._recent: dict[int, Mark] = {self.base.shard: self.base}
        self._read = 0
        self._busy = threading.Lock()
        self.refresh()

    @property
    def last(self) -> Mark:
        """The mark behind the shard made last, as far as was looked."""
        return self.mark(self.base.shard + len(self._lines))

    def mark(self, shard: int) -> Mark:
        """The mark before a shard. Raises IndexError for one that is not known here."""
        behind = shard - self.base.shard
        if not 0 <= behind <= len(self._lines):
            first, last = self.base.shard, self.base.shard + len(self._lines) - 1
            raise IndexError(f"{self.directory} knows shards {first} to {last}, not {shard}")
        if behind == 0:
            return self.base
        found = self._recent.get(shard)
        if found is None:
            found = from_data(json.loads(self._lines[behind - 1]))
            if len(self._recent) >= _RECENT:
                self._recent = {}
            self._recent[shard] = found
        return found

    def refresh(self) -> Mark:
        """Looks for shards that were made meanwhile, by whomever; the mark behind the last.

        Of a billion examples there are tens of thousands of lines: only their counts are read before they are needed.
        """
        with self._busy:
            try:
                with (self.directory / LINES).open("rb") as file:
                    file.seek(self._read)
                    new = file.read()
            except FileNotFoundError:
                return self.last
            whole = new[: new.rfind(b"\n") + 1]
            for line in whole.splitlines(keepends=True):
                self._take(line)
            return self.last

    def _take(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if found is None or int(found[1]) != self.base.shard + len(self._lines) + 1:
            raise DamagedStoreError(f"{self.directory / LINES} is not as it was written at its byte {self._read}")
        counts = json.loads(found[3])
        for name, tokens in self._tokens.items():
            tokens.append(counts.get(name, 0))
        self._examples.append(int(found[2]))
        self._lines.append(line)
        self._read += len(line)

    def shards_of(self, examples_N: np.ndarray) -> np.ndarray:
        """(N,) the shard that each example is in; these must be spooled. Raises IndexError for those before `base`."""
        firsts = self._array("", self._examples)
        if len(examples_N) and not firsts[0] <= examples_N.min() <= examples_N.max() < firsts[-1]:
            raise IndexError(f"{self.directory} has the examples {firsts[0]} to {firsts[-1] - 1}")
        return np.searchsorted(firsts, examples_N, side="right") - 1 + self.base.shard

    def shard_at_token(self, column: str, token: int) -> int:
        """The shard that holds a token of a column, counted over all shards."""
        firsts = self._array(column, self._tokens[column])
        return int(np.searchsorted(firsts, token, side="right")) - 1 + self.base.shard

    def _array(self, name: str, counts: list[int]) -> np.ndarray:
        kept = self._arrays.get(name)
        if kept is None or len(kept) != len(counts):
            kept = self._arrays[name] = np.array(counts, np.int64)
        return kept

    def append(self, mark: Mark) -> None:
        """Writes the mark behind a shard that is whole. Hold the lock."""
        path = self.directory / LINES
        line = json.dumps(to_data(mark), separators=(",", ":")).encode() + b"\n"
        with explain_full_disk(path), path.open("ab") as file:
            file.truncate(self._read)  # what a kill left of a line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.refresh()

    def paths(self, shard: int) -> tuple[Path, Path]:
        """Where a shard and its description stand, as `spanloom.pipeline.shard_maker.ShardMaker` has it."""
        name = f"shard-{shard:05d}"
        return self.directory / "store" / f"{name}.arrow", self.directory / "entries" / f"{name}.json"

    def kept(self) -> list[int]:
        """The shards that are on disk, in order."""
        try:
            names = os.listdir(self.directory / "store")
        except FileNotFoundError:
            return []
        found = (_SHARD.fullmatch(name) for name in names)
        numbers = sorted(int(match[1]) for match in found if match)
        return [number for number in numbers if self.base.shard <= number < self.last.shard]

    def drop(self, examples: int) -> None:
        """Deletes the shards that hold nothing from this example on; their lines in the index stay."""
        write_file(self.directory / _NEEDED, lambda file: file.write(str(examples).encode()))
        for shard in self.kept():
            if self.mark(shard + 1).examples <= examples:
                self.delete(shard)

    def delete(self, shard: int) -> None:
        """Deletes a shard; it is made again if somebody needs it."""
        for path in reversed(self.paths(shard)):
            path.unlink(missing_ok=True)

    def needed(self) -> int:
        """The first example that a checkpoint needs: what `drop` was last told."""
        return self._number(_NEEDED, 0)

    def wanted(self) -> int:
        """The shard that somebody waits for, or reads; -1 where nobody ever did."""
        return self._number(_WANTED, -1)

    def _number(self, name: str, default: int) -> int:
        try:
            return int((self.directory / name).read_bytes())
        except (FileNotFoundError, ValueError):
            return default

    def want(self, shard: int) -> None:
        """Says that a shard is waited for, or read."""
        if self.wanted() < shard:
            temporary = self.directory / f"{_WANTED}.{os.getpid()}-{threading.get_ident()}.part"
            temporary.write_bytes(str(shard).encode())
            temporary.replace(self.directory / _WANTED)


def begin(directory: Path, fingerprint: Mapping[str, Any], dtypes: Mapping[str, str], bound: int, base: Mark) -> None:
    """Writes what a spool begins with, in a directory that is empty."""
    for name in ("store", "entries"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    header = {"fingerprint": fingerprint, "dtypes": dtypes, "bound": bound, "base": to_data(base)}
    data = json.dumps(header, indent=1, sort_keys=True).encode()
    write_file(directory / HEADER, lambda file: file.write(data))
