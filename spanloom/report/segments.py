"""A run's metrics.jsonl, whole or, in a bucket it was copied to, in segments (see `spanloom.training.copied`)."""

import math
from collections.abc import Iterator
from itertools import pairwise

from spanloom.report.run_files import RunFiles
from spanloom.settings.run_layout import SEGMENTS, segment_name, segment_start


class MetricsText:
    """The bytes of the file, wherever they are."""

    def __init__(self, files: RunFiles, name: str) -> None:
        """Reads nothing yet."""
        self._files, self._name = files, name

    def size(self) -> int:
        """Bytes there are."""
        if (whole := self._files.size(self._name)) is not None:
            return whole
        starts = self._starts()
        return starts[-1] + (self._files.size(_path(starts[-1])) or 0) if starts else 0

    def blocks(self, start: int) -> Iterator[bytes]:
        """What there is from a byte on, block by block."""
        starts = [] if self._files.has(self._name) else self._starts()
        if not starts:
            yield from self._files.blocks(self._name, start)
        for begin, end in pairwise([*starts, math.inf]):
            if end > start:
                yield from self._files.blocks(_path(int(begin)), max(start - int(begin), 0))

    def _starts(self) -> list[int]:
        return sorted(found for name in self._files.names(SEGMENTS) if (found := segment_start(name)) is not None)


def _path(start: int) -> str:
    return f"{SEGMENTS}/{segment_name(start)}"
