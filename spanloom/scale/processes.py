"""The processes of a run on several hosts: connected by `jax.distributed`, watched by a roll call."""

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from spanloom.scale.roll_call import FAREWELL_SECONDS, RollCall, RollCallError, call_roll

EXIT_GONE = 75
"""Exit code where another process is gone (EX_TEMPFAIL): the same commands go on."""
GRACE_SECONDS = 10.0
"""A collective that fails waits so long for word of who is gone."""
HEARTBEAT_SECONDS = 100
"""JAX ends a process whose service or peers are silent for so long; the roll call is to know before."""


@dataclass(frozen=True)
class Processes:
    """Which of several processes this one is."""

    coordinator: str
    """HOST:PORT of the first process; the next port is used as well."""
    processes: int
    """How many there are."""
    process: int
    """This one, from 0."""
    timeout: float = 120.0
    """Seconds to wait for the others."""


@dataclass(frozen=True)
class Crew:
    """This process among those of its run."""

    process: int = 0
    """From 0; the first one writes and speaks."""
    processes: int = 1
    """How many there are."""
    roll: RollCall | None = None
    """The lines to the others, if there are any."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes what only one may write, and speaks to the user."""
        return self.process == 0

    def barrier(self, name: str) -> None:
        """Until every process has come here; a name may come again once that is over."""
        if self.roll is not None:
            self.roll.barrier(name)

    def gather(self, name: str, value: str) -> list[str]:
        """A barrier at which every process says something: what all said, in their order, in the first one alone."""
        return [value] if self.roll is None else self.roll.gather(name, value)

    @contextlib.contextmanager
    def first_before_others(self, name: str) -> Iterator[None]:
        """The first process goes through the block, and only then the others."""
        if not self.is_first:
            self.barrier(name)
        yield
        if self.is_first:
            self.barrier(name)


ALONE = Crew()
"""One process."""


@contextlib.contextmanager
def connected(settings: Processes | None) -> Iterator[Crew]:
    """Inside, all processes of the run are there and JAX sees all their devices; None: this one is alone.

    Comes before anything else of JAX. Raises RollCallError, naming those that are missing. Once connected, a process
    that goes ends all others within a minute, each with a message that names it.
    """
    if settings is None:
        yield ALONE
        return
    import jax

    host, _, port = settings.coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65535:
        raise RollCallError(
            f"--coordinator {settings.coordinator!r}: give HOST:PORT of process 0, a port from 1 to 65534 (the next is "
            "used as well)"
        )
    roll = call_roll((host, int(port)), settings.process, settings.processes, settings.timeout, _end_too(settings))
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is for the loop to answer
    try:
        jax.distributed.initialize(
            f"{host}:{int(port) + 1}",
            settings.processes,
            settings.process,
            cluster_detection_method="deactivate",
            initialization_timeout=max(int(settings.timeout), 60),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
        yield Crew(settings.process, settings.processes, roll)
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt | SystemExit) and _is_of_the_network(error):
            time.sleep(GRACE_SECONDS)  # the roll call ends this process as soon as it knows who is gone
        roll.fail(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300])
        atexit.register(_leave, settings.process)
        raise
    roll.barrier("the end")
    roll.close()
    jax.distributed.shutdown()


def _end_too(settings: Processes) -> Callable[[int, str], None]:
    def end(process: int, why: str) -> None:
        again = "Start all of them again with the same commands: the run goes on from its last checkpoint."
        if not why.startswith(("killed", "silent")):
            again = "See what it says, and start all of them again: a run that began goes on from its last checkpoint."
        message = (
            f"\nspanloom: process {process} of {settings.processes} is gone ({why}), so process {settings.process} "
            f"ends too. {again}\n"
        )
        with contextlib.suppress(OSError):
            os.write(2, message.encode())
        os._exit(EXIT_GONE)

    return end


def _leave(process: int) -> None:
    """End this process once it has said what failed, without JAX's farewell, which others no longer answer.

    The first one, in which JAX's service lives, leaves last.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if process == 0:
        time.sleep(FAREWELL_SECONDS)
    os._exit(1)


def _is_of_the_network(error: BaseException) -> bool:
    """Whether an error may come from a collective operation whose partner is gone."""
    text = str(error)
    return any(word in text for word in ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination", "ABORTED"))
