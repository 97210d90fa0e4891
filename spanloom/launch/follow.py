"""What a launch says, as it is said: what happens to it, and the output of its first process."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from spanloom.launch.failure import FIRST
from spanloom.launch.record import ENDS, Launch, LaunchError, State, is_watched, read_state

EVERY_SECONDS = 0.2


@dataclass
class Tail:
    """A file that grows, or is yet to come."""

    path: Path
    offset: int = 0

    def read(self) -> str:
        """What has come since."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                chunk = file.read(2**20)
        except OSError:
            return ""
        end = chunk.rfind(b"\n") + 1 or (len(chunk) if len(chunk) == 2**20 else 0)
        self.offset += end
        return chunk[:end].decode(errors="replace")


def follow(launch: Launch, process: int = 0, out: TextIO | None = None, *, since: int = 0) -> State:
    """Print what a launch says until it ends; how it stands then. Raises LaunchError where nobody watches it.

    `since`: bytes of what happened that are left out.
    """
    out = out or sys.stdout
    happened = Tail(launch.folder / "watch.log", since)
    attempt = read_state(launch).attempt
    said = Tail(launch.log(attempt, process))
    while True:
        state = read_state(launch)
        over = state.state in ENDS and not is_watched(launch)  # in this order: what came before is printed below
        texts = ("".join(_lines(happened.read())), said.read())
        # A verdict stands below all that was said, also where both came since the last look.
        for text in reversed(texts) if over or FIRST in texts[0] else texts:
            out.write(text)
        out.flush()
        if over:
            return state
        if state.attempt != attempt:
            attempt, said = state.attempt, Tail(launch.log(state.attempt, process))
        if state.state not in ENDS and not is_watched(launch) and read_state(launch) == state:
            raise LaunchError(
                f"nobody watches {launch.id} any more (was its watcher killed?). What runs, runs on: spanloom launch "
                f"status {launch.id} asks its hosts, stop {launch.id} stops it, and retry {launch.id} goes on"
            )
        time.sleep(EVERY_SECONDS)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"launch {line}\n"
