"""`spanloom launch status|logs|stop|retry`: what is done with a launch that was made."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from spanloom.cli.errors import INTERRUPTED, CommandError, UsageError
from spanloom.cli.parsing import options, split_for

if TYPE_CHECKING:
    from spanloom.launch.record import Launch

Options = TypeVar("Options")
LAUNCH = "LAUNCH is an ID or a part of one, or the directory of the run; without it, the newest launch is meant."


@dataclass(frozen=True)
class Asking:
    """What status takes."""

    all: bool = False
    """A line for each launch that was made from this machine."""


@dataclass(frozen=True)
class Reading:
    """What logs takes."""

    process: int = 0
    """Whose output, from 0."""
    attempt: int = 0
    """Of which start, from 1; 0: of the newest, and on with those that come."""


@dataclass(frozen=True)
class Stopping:
    """What stop takes."""

    timeout: float = 660.0
    """Seconds to wait until all have ended."""


@dataclass(frozen=True)
class Retrying:
    """What retry takes."""

    detach: bool = False
    """Do not follow the output."""


def follow_to_the_end(launch: "Launch", process: int = 0, since: int = 0) -> int:
    """Print what a launch says; the exit code: 0 done or stopped, 130 where Ctrl-C leaves it running.

    Raises CommandError once it has failed.
    """
    from spanloom.launch.follow import follow

    try:
        state = follow(launch, process, since=since)
    except KeyboardInterrupt:
        name = launch.id
        print(
            f"\n{name} runs on. Follow it: spanloom launch logs {name}; how it stands: spanloom launch status {name}; "
            f"stop it: spanloom launch stop {name}",
            file=sys.stderr,
        )
        return INTERRUPTED
    if state.state == "failed":
        first, *rest = state.message.splitlines() or ["it does not say why"]
        raise CommandError("\n".join([f"launch {launch.id}: {first}", *rest[-1:]]))  # what lies between was shown
    return 0


def status(argv: Sequence[str]) -> int:
    """How a launch stands."""
    word, asked = _read(Asking, argv, "status", "How a launch stands, process by process.", "[--all]")
    from spanloom.launch.asked import stands
    from spanloom.launch.record import LaunchError, find, folders, read_launch, read_state

    if asked.all:
        for folder in folders():
            try:
                launch = read_launch(folder)
                print(f"{launch.id}  {read_state(launch).state:<9}  {launch.on}  {launch.out}")
            except LaunchError as error:
                print(f"{folder.name}  {error}")
        return 0
    for line in stands(find(word)):
        print(line)
    return 0


def logs(argv: Sequence[str]) -> int:
    """The output of a process of a launch."""
    word, asked = _read(Reading, argv, "logs", "What a process says, as it says it.", "[--process 3]")
    from spanloom.launch.record import find, read_state

    launch = find(word)
    path = launch.log(asked.attempt or read_state(launch).attempt, asked.process)
    if not asked.attempt and (asked.process == 0 or path.is_file()):
        return follow_to_the_end(launch, asked.process)
    if not path.is_file():
        raise CommandError(
            f"{path}: no such log: is --process below the number of processes, and --attempt of a start?"
        )
    with path.open(encoding="utf-8", errors="replace") as file:
        shutil.copyfileobj(file, sys.stdout)
    return 0


def stop(argv: Sequence[str]) -> int:
    """Stop a launch: every process saves and ends."""
    word, asked = _read(Stopping, argv, "stop", "Stops a launch: every process saves and ends.", "")
    from spanloom.launch.asked import stop_launch
    from spanloom.launch.record import find, is_watched, read_state

    launch = find(word)
    stop_launch(launch, lambda text: print(text, flush=True))
    deadline = time.monotonic() + asked.timeout
    while is_watched(launch):
        if time.monotonic() > deadline:
            name = launch.id
            raise CommandError(f"{name} has not ended in {asked.timeout:.0f} s: spanloom launch status {name}")
        time.sleep(0.2)
    state = read_state(launch)
    print(f"{launch.id}: {state.state}" + (f"; {state.step} is saved" if state.step else ""))
    return 0


def retry(argv: Sequence[str]) -> int:
    """Start a launch again, with the same code: the run goes on from its last checkpoint."""
    word, asked = _read(Retrying, argv, "retry", "Starts a launch again, with the code and words it had.", "[--detach]")
    from spanloom.launch.record import find
    from spanloom.launch.watcher import spawn

    launch = find(word)
    since = (launch.folder / "watch.log").stat().st_size
    spawn(launch)
    return 0 if asked.detach else follow_to_the_end(launch, since=since)


def _read(cls: type[Options], argv: Sequence[str], verb: str, about: str, flag: str) -> tuple[str | None, Options]:
    """The launch that is named, None for the newest, and the options. Raises UsageError."""
    prog = f"spanloom launch {verb}"
    words, flags = split_for(cls, argv)
    told = [word for flag in flags for word in flag.words()]
    example = f"    {prog}\n    {prog} runs/a {flag}".rstrip()
    chosen = options(cls, told, prog, "[LAUNCH] [flags]", f"{about}\n\n{LAUNCH}\n\n{example}\n")
    if len(words) > 1:
        raise UsageError(f"{prog} takes one launch, not {len(words)}: {' '.join(words)}")
    if words and not words[0].strip():
        raise UsageError(f"{prog}: the name is empty (is a variable of the shell unset?)")
    return (words[0] if words else None), chosen


VERBS: dict[str, Callable[[Sequence[str]], int]] = {"status": status, "logs": logs, "stop": stop, "retry": retry}
"""What comes in the place of a recipe."""
