"""Of several processes that ended badly, which did so first, and what it said."""

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spanloom.scale.processes import EXIT_GONE

GONE = EXIT_GONE
"""Exit code of a process that ends because another one is gone."""
FIRST = "failed first"
"""What is said of the process that did, once all have ended."""
LINES = 30
"""Lines of a log that are shown where it has no traceback."""


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int | None
    """Its exit code, minus the signal that killed it; None: it or its host is lost."""
    at: float
    """When, in seconds of the launching machine's clock."""
    stopped: bool = False
    """Whether it was told to."""


def first_failure(ended: Mapping[int, Ended]) -> int | None:
    """The process that failed first, of those that did not merely follow another; None where none failed."""
    failed = {number: end for number, end in ended.items() if end.code != 0 and not end.stopped}
    own = {number: end for number, end in failed.items() if end.code not in (GONE, -signal.SIGABRT)} or failed
    return min(own, key=lambda number: own[number].at, default=None)


def how(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "is lost: its machine or the way to it is down, or was taken away"
    if code < 0:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        out_of_memory = ", perhaps because memory ran out (dmesg says so)" if code == -signal.SIGKILL else ""
        return f"was killed by {name}{out_of_memory}"
    return f"ended with exit code {code}"


def shown(log: Path) -> str:
    """The last traceback of a log with what follows it, or its last lines."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - 2**18, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "  (it left no log)"
    chosen = _traceback(lines) or lines[-LINES:]
    return "\n".join(f"  {_printable(line)}" for line in chosen) or "  (its log is empty)"


def last_line(log: Path) -> str:
    """What a log ends with; empty where it says nothing."""
    return shown(log).splitlines()[-1].strip() if log.is_file() and log.stat().st_size else ""


def _traceback(lines: Sequence[str]) -> Sequence[str]:
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return ()
    found = lines[starts[-1] :]
    return found if len(found) <= 3 * LINES else [*found[: 2 * LINES], "...", *found[-LINES:]]


def _printable(line: str) -> str:
    """Without what would command a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f\x9b]", "", line)
