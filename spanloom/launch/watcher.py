"""The process that watches a launch, on the machine that it was started from, apart from any terminal: it starts
everything, stops all where one fails, says what failed first, and starts again where that is asked for.

python -P -m spanloom.launch.watcher FOLDER; what it says goes to FOLDER/watch.log.
"""

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spanloom.launch import attempt as attempts
from spanloom.launch.attempt import Attempt, Outcome
from spanloom.launch.bundle import BundleError
from spanloom.launch.calls import HostError
from spanloom.launch.failure import FIRST, first_failure, how, shown
from spanloom.launch.hosts import HostsError
from spanloom.launch.record import ENDS, Launch, LaunchError, State, claim, read_launch, read_state, write_state
from spanloom.pipeline.durable import StorageError

STUCK = 3
"""Starts in a row that may end at the same checkpoint."""
SAVED = "stopped after step"
"""What training says when a signal had it save and end, with exit code 0, before it was done."""
KNOWN = (HostError, HostsError, LaunchError, BundleError, OSError)


def spawn(launch: Launch) -> None:
    """Start the watcher of a launch, which lives on when this process ends.

    It has its claim from the beginning. Raises LaunchError where there is a watcher already.
    """
    claimed = claim(launch)
    (launch.folder / "stop").unlink(missing_ok=True)
    write_state(launch, dataclasses.replace(read_state(launch), state="preparing", message="", since=time.time()))
    with (launch.folder / "watch.log").open("ab") as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "spanloom.launch.watcher", str(launch.folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(claimed,),  # locked until both have closed it
        )
    os.close(claimed)


class Watcher:
    """Watches one launch until it ends."""

    def __init__(self, launch: Launch, attempt: Callable[..., Any] = Attempt) -> None:
        self.launch, self._attempt = launch, attempt
        self._state = dataclasses.replace(read_state(launch), restarts=0, message="", processes=())
        self._last: str | None = "none yet"
        """The checkpoint at which the last start ended."""
        self._stuck = 0
        """Starts since then that got no further."""
        self._fruitless = 0
        """The same, with those that came to no start."""

    def run(self) -> State:
        """Start, and start again, until it is done, stopped or given up."""
        while True:
            self._now("preparing", attempt=self._state.attempt + 1)
            number = self._state.attempt
            say(f"start {number} of {self.launch.id}")
            try:
                outcome = self._attempt(self.launch, number, say, self._tell, self._stopping).run()
            except KNOWN as error:
                problem: str | None = str(error)
                self._fruitless += 1
            else:
                problem = self._judge(outcome, number)
                self._now(self._state.state, step=outcome.step or self._state.step)
                self._stuck = self._stuck + 1 if outcome.step == self._last else 0
                self._fruitless = self._fruitless + 1 if self._stuck else 0
                self._last = outcome.step
            if self._stopping():
                return self._now("stopped", message="")
            if problem is None:
                return self._now("done", message="")
            say(problem)
            if end := self._why_not_again():
                return self._now("failed", message=f"{problem}\n{end}".rstrip())
            if not self._wait():
                return self._now("stopped", message="")

    def _judge(self, outcome: Outcome, number: int) -> str | None:
        """What went wrong, with the words of the process that failed first; None where all is done."""
        first = first_failure(outcome.ended)
        if first is None:
            saved = outcome.ended and SAVED in shown(self.launch.log(number, 0))
            return "a signal from outside stopped the run, which saved what it had" if saved else None
        log = self.launch.log(number, first)
        return f"{outcome.names[first]} {FIRST}: it {how(outcome.ended[first].code)}. Its last words:\n{shown(log)}"

    def _why_not_again(self) -> str:
        """Why there is no other start; empty where there is one."""
        if not self.launch.keep_going:
            return f"start again where it stopped: spanloom launch retry {self.launch.id}"
        if self._state.restarts >= self.launch.restarts:
            return (
                f"given up after {self.launch.restarts} restarts (--restarts): spanloom launch retry {self.launch.id}"
            )
        if self._stuck >= STUCK - 1:
            return f"given up: {STUCK} starts in a row got no further than {self._last or 'the beginning'}"
        return ""

    def _wait(self) -> bool:
        """Wait before another start; whether there is to be one."""
        seconds = min(attempts.FIRST_WAIT * 2**self._fruitless, attempts.LONGEST_WAIT)
        self._now("waiting", restarts=self._state.restarts + 1)
        where = f" from {self._state.step}" if self._state.step else ""
        say(f"restart {self._state.restarts} of at most {self.launch.restarts} in {seconds:.0f} s{where}")
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stopping():
            time.sleep(0.3)
        return not self._stopping()

    def _stopping(self) -> bool:
        return (self.launch.folder / "stop").exists()

    def _tell(self, processes: Sequence[str], **more: Any) -> None:
        self._now("running", processes=tuple(processes), **more)

    def _now(self, state: str, **changes: Any) -> State:
        self._state = dataclasses.replace(self._state, state=state, since=time.time(), **changes)
        try:
            write_state(self.launch, self._state)
        except (OSError, StorageError) as error:
            say(f"how it stands cannot be written down: {error}")
        return self._state


def say(text: str) -> None:
    """A line of watch.log."""
    with contextlib.suppress(OSError):  # a full disk ends no training
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main(folder: str) -> int:
    """Watch the launch in a folder to its end."""
    launch = read_launch(Path(folder))
    if launch.on.startswith("slurm"):
        from spanloom.launch.slurm import SlurmAttempt

        watcher = Watcher(launch, SlurmAttempt)
    else:
        watcher = Watcher(launch)
    try:
        state = watcher.run()
    except BaseException as error:
        write_state(
            launch, dataclasses.replace(read_state(launch), state="failed", message=f"{type(error).__name__}: {error}")
        )
        raise
    assert state.state in ENDS
    why = f". {state.message.splitlines()[-1]}" if state.message else ""
    say(f"{state.state}{why}")
    return 1 if state.state == "failed" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
