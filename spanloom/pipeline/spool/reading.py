"""The rows of one shard of a stream after another. Where a shard ends follows from the stream and settings alone."""

from collections.abc import Callable, Mapping
from typing import Any

from spanloom.pipeline.build import SHARD_BYTES
from spanloom.pipeline.groups import Group
from spanloom.pipeline.spool.marks import Place
from spanloom.settings.row_sources import Streamed
from spanloom.tasks.heldout import hashes_of
from spanloom.tasks.read_report import BadInputError
from spanloom.tasks.row_sources import described
from spanloom.tasks.row_streams import Passed, RowStream, open_stream
from spanloom.tasks.rows import ROW, RowError, pack_row

Say = Callable[[str], object]
"""Takes what the user may want to know."""


class GroupReader:
    """Reads a stream from a place on. A group ends with so many rows or bytes, or with a pass over the stream."""

    def __init__(self, source: Streamed, place: Place, bound: int, passed: Passed, say: Say) -> None:
        self._source = source
        self._bound = bound
        self._passed = passed
        self._say = say
        self._stream: RowStream | None = None
        self.place = place
        """Behind the group that was read last."""

    def next(self, number: int) -> Group:
        """The group of shard `number`. Raises BadInputError where the source fails, or gives no row to train on."""
        try:
            return self._next(number)
        except BaseException:
            self._stream = None  # whoever tries again begins where this group did
            raise

    def _next(self, number: int) -> Group:
        passes, rows, size, packed = self.place.passes, self.place.rows, 0, list[bytes]()
        stream = self._opened()
        is_whole = rows == 0
        while len(packed) < self._source.shard_rows and size < SHARD_BYTES:
            row = next(stream.rows, None)
            if row is None:
                if packed:
                    break
                if is_whole:
                    raise self._no_row(rows)
                self._say_end(passes, rows)
                stream = self._stream = open_stream(self._source)
                is_whole, passes, rows = True, passes + 1, 0
                continue
            one = self._packed(row, rows)
            rows += 1
            if self._bound and int(hashes_of([one])[0]) < self._bound:
                continue
            packed.append(one)
            size += len(one)
        group = Group("train", number, {ROW: packed}, size, self.place.kept)
        self.place = Place(passes, rows, self.place.kept + len(packed), stream.state())
        return group

    def _opened(self) -> RowStream:
        if self._stream is None:
            self._stream = open_stream(self._source, self.place.rows, self.place.state, self._passed)
        return self._stream

    def _packed(self, row: Mapping[str, Any], number: int) -> bytes:
        try:
            return pack_row(row)
        except RowError as error:
            raise BadInputError(described(self._source), f"row {number}: {error}") from error

    def _no_row(self, rows: int) -> BadInputError:
        what = "the stream has no row" if not rows else f"none of the {rows:,} rows of the stream is for training"
        return BadInputError(described(self._source), what, "Check what is named, and heldout_share", reason="no rows")

    def _say_end(self, passes: int, rows: int) -> None:
        if passes == 0:
            self._say(
                f"the stream {described(self._source)} ended after {rows:,} rows and begins again, as often as the "
                "run asks: its examples come in another order each time. One that fits on disk is better read whole "
                "(streaming False): it is then shuffled as a whole"
            )
