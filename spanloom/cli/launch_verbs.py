"""`spanloom launch status|logs|stop|retry`: what is done with a launch that was made."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from spanloom.cli.errors import INTERRUPTED, CommandError, UsageError
from spanloom.cli.parsing import options

if TYPE_CHECKING:
    from spanloom.launch.record import Launch


def follow_to_the_end(launch: "Launch", process: int = 0) -> int:
    """Print what a launch says; the exit code: 0 done or stopped, 1 failed, 130 where Ctrl-C leaves it running."""
    from spanloom.launch.follow import follow

    try:
        state = follow(launch, process)
    except KeyboardInterrupt:
        name = launch.id
        print(
            f"\n{name} runs on. Follow it: spanloom launch logs {name}; how it stands: spanloom launch status {name}; "
            f"stop it: spanloom launch stop {name}",
            file=sys.stderr,
        )
        return INTERRUPTED
    if state.state == "failed":
        raise CommandError(f"launch {launch.id} failed: {state.message}")
    return 0


def status(argv: Sequence[str]) -> int:
    """How a launch stands."""
    from tyro.conf import arg

    @dataclass(frozen=True)
    class Options:
        launch: Annotated[tuple[str, ...], arg(metavar="[LAUNCH ...]")] = ()
        """An ID, a part of it, or the run's directory; the newest launch without."""
        all: bool = False
        """A line for each launch that was made from here."""

    about = "How a launch stands.\n\n    spanloom launch status\n    spanloom launch status runs/a\n"
    chosen = _options(Options, argv, "status", about)
    from spanloom.launch.asked import stands
    from spanloom.launch.record import find, launches, read_launch, read_state

    if chosen.all:
        for folder in sorted(launches().iterdir()) if launches().is_dir() else ():
            launch = read_launch(folder)
            print(f"{launch.id}  {read_state(launch).state:<9}  {launch.on}  {launch.out}")
        return 0
    for line in stands(find(_one(chosen.launch))):
        print(line)
    return 0


def logs(argv: Sequence[str]) -> int:
    """Print the output of a process of a launch, and go on with it."""
    from tyro.conf import arg

    @dataclass(frozen=True)
    class Options:
        launch: Annotated[tuple[str, ...], arg(metavar="[LAUNCH ...]")] = ()
        """An ID, a part of it, or the run's directory; the newest launch without."""
        process: int = 0
        """Whose output, from 0."""
        attempt: int = 0
        """Of which start, from 1; 0: the newest, and on with those that come."""

    about = (
        "What a process says, as it comes.\n\n    spanloom launch logs\n    spanloom launch logs runs/a --process 3\n"
    )
    chosen = _options(Options, argv, "logs", about)
    from spanloom.launch.record import find, read_state

    launch = find(_one(chosen.launch))
    number = chosen.attempt or read_state(launch).attempt
    path = launch.log(number, chosen.process)
    if chosen.attempt:
        if not path.is_file():
            raise CommandError(f"{path}: no such log: start {number} had no process {chosen.process}")
        with path.open(encoding="utf-8", errors="replace") as file:
            shutil.copyfileobj(file, sys.stdout)
        return 0
    return follow_to_the_end(launch, chosen.process)


def stop(argv: Sequence[str]) -> int:
    """Stop a launch: every process saves and ends."""
    from tyro.conf import arg

    @dataclass(frozen=True)
    class Options:
        launch: Annotated[tuple[str, ...], arg(metavar="[LAUNCH ...]")] = ()
        """An ID, a part of it, or the run's directory; the newest launch without."""
        timeout: float = 660.0
        """Seconds to wait until all have ended."""

    about = (
        "Stops a launch: every process saves and ends.\n\n    spanloom launch stop\n    spanloom launch stop runs/a\n"
    )
    chosen = _options(Options, argv, "stop", about)
    from spanloom.launch.asked import stop_launch
    from spanloom.launch.record import ENDS, find, is_watched, read_state

    launch = find(_one(chosen.launch))
    stop_launch(launch, lambda text: print(text, flush=True))
    deadline = time.monotonic() + chosen.timeout
    while is_watched(launch):
        if time.monotonic() > deadline:
            raise CommandError(
                f"{launch.id} has not ended in {chosen.timeout:.0f} s: spanloom launch status {launch.id}"
            )
        time.sleep(0.2)
    state = read_state(launch)
    assert state.state in ENDS
    print(f"{launch.id}: {state.state}" + (f"; {state.step} is saved" if state.step else ""))
    return 0


def retry(argv: Sequence[str]) -> int:
    """Start a launch again, with the same code: the run goes on from its last checkpoint."""
    from tyro.conf import arg

    @dataclass(frozen=True)
    class Options:
        launch: Annotated[tuple[str, ...], arg(metavar="[LAUNCH ...]")] = ()
        """An ID, a part of it, or the run's directory; the newest launch without."""
        detach: bool = False
        """Do not follow the output."""

    about = "Starts a launch again with the same code.\n\n    spanloom launch retry\n    spanloom launch retry runs/a\n"
    chosen = _options(Options, argv, "retry", about)
    from spanloom.launch.record import find, is_watched
    from spanloom.launch.watcher import spawn

    launch = find(_one(chosen.launch))
    if is_watched(launch):
        raise CommandError(f"{launch.id} is not over: spanloom launch logs {launch.id}, or stop it first")
    spawn(launch)
    return 0 if chosen.detach else follow_to_the_end(launch)


def _options(cls: type, argv: Sequence[str], verb: str, about: str):  # type: ignore[no-untyped-def]
    return options(cls, argv, f"spanloom launch {verb}", "[LAUNCH] [flags]", about, rest="launch")


def _one(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        raise UsageError(f"one launch at a time, not {len(words)}: {' '.join(words)}")
    return words[0] if words else None


VERBS: dict[str, Callable[[Sequence[str]], int]] = {"status": status, "logs": logs, "stop": stop, "retry": retry}
"""What comes in the place of a recipe."""
