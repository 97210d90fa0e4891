"""Processes that make shards: one reader hands them the documents of a shard each, and they share nothing.

The reader is the process that builds. Reading is cheap and tokenizing dear, so it keeps many of them busy; it holds the
documents of one shard, and each of them those of another.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from types import TracebackType
from typing import Any

from spanloom.pipeline.groups import Group
from spanloom.pipeline.shard_maker import Count, ShardEntry, ShardMaker
from spanloom.tasks.heldout import Split

MOST_WORKERS = 16
"""One reader keeps no more than about so many busy."""

_MADE_HERE = 2  # shards of a part: 64 MiB
_SECONDS_TO_END = 10.0

Shard = tuple[Split, int, ShardEntry]
"""Part, number and description of a shard that is whole on disk."""
Tell = Callable[[Count], object]


class WorkerError(RuntimeError):
    """A process that made shards ended before its time. The message names it and says what to do."""


def default_workers() -> int:
    """As many processes as there are cores for this one."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, MOST_WORKERS)


def make_shards(
    groups: Iterable[Group], makers: Mapping[Split, ShardMaker], tell: Tell, *, workers: int, locks: Iterable[int]
) -> Iterator[Shard]:
    """Makes the shard of each group, with several `workers` in any order.

    The first shards of each part are made here, so that small text, for which processes would cost more than they save,
    starts none; then one starts for a group where none is idle, so that few groups start few. They hold the files of
    `locks` open, so that these stay locked until the last of them ended.
    Raises what making a shard raises, and WorkerError where a process was killed; the others then end.
    """
    remaining = iter(groups)
    for group in remaining:
        if workers > 1 and group.number >= _MADE_HERE:
            break
        yield group.split, group.number, makers[group.split].make(group, tell)
    else:
        return
    with _Workers(workers, makers, tell, locks) as pool:
        yield from pool.hand_over(group)
        del group
        for group in remaining:
            yield from pool.hand_over(group)
        yield from pool.finish()


@dataclass(frozen=True)
class _Worker:
    process: BaseProcess
    connection: Connection


class _Workers:
    """At most so many processes: one starts where a group is there and no other is idle."""

    def __init__(self, most: int, makers: Mapping[Split, ShardMaker], tell: Tell, locks: Iterable[int]) -> None:
        self._most = most
        self._tell = tell
        self._work = dict(makers), [_Inherited(lock) for lock in locks]
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}
        self._all: list[_Worker] = []

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._all:
            if error is not None:
                worker.process.terminate()
            worker.connection.close()
        for worker in self._all:
            worker.process.join(_SECONDS_TO_END)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def hand_over(self, group: Group) -> Iterator[Shard]:
        """Gives the group to a process, once one is idle or may be started; the shards that were finished meanwhile."""
        yield from self._receive(timeout=0)
        if not self._idle and len(self._all) < self._most:
            self._start()
        while not self._idle:
            yield from self._receive()
        worker = self._idle.pop(0)
        try:
            worker.connection.send(group)
        except OSError:
            raise _ended(worker) from None
        self._busy[worker.connection] = worker

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the locks of JAX's threads
        ours, theirs = context.Pipe()
        name = f"process {len(self._all) + 1} of those that build the store"
        process = context.Process(target=_work, args=(theirs, *self._work), name=name, daemon=True)
        process.start()
        theirs.close()  # so that its end is seen: nobody else holds this one
        self._all.append(_Worker(process, ours))
        self._idle.append(self._all[-1])

    def finish(self) -> Iterator[Shard]:
        """The shards that are still being made."""
        while self._busy:
            yield from self._receive()

    def _receive(self, timeout: float | None = None) -> Iterator[Shard]:
        for connection in wait(list(self._busy), timeout):
            assert isinstance(connection, Connection)
            worker = self._busy[connection]
            try:
                message: Any = connection.recv()
            except (EOFError, OSError):
                raise _ended(worker) from None
            if isinstance(message, Count):
                self._tell(message)
            elif isinstance(message, BaseException):
                raise message
            else:
                self._idle.append(self._busy.pop(connection))
                yield message


class _Inherited:
    """A file descriptor that a process to be started gets a copy of, with the file's locks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _take_over, (DupFd(self.descriptor),)


def _take_over(copy: Any) -> "_Inherited":
    return _Inherited(copy.detach())


def _work(connection: Connection, makers: Mapping[Split, ShardMaker], _locks: list[_Inherited]) -> None:
    """What each process does until the reader closes the connection, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the reader ends the others
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            group = connection.recv()
            try:
                shard = (group.split, group.number, makers[group.split].make(group, connection.send))
            except ConnectionError:
                return
            except Exception as error:
                connection.send(_as_sent(error))
            else:
                connection.send(shard)
            del group


def _as_sent(error: Exception) -> Exception:
    """The error with where it happened, as the reader can raise it: some cannot be taken apart and put together."""
    error.add_note("in a process that makes shards:\n" + "".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _ended(worker: _Worker) -> WorkerError:
    worker.process.join(_SECONDS_TO_END)
    code = worker.process.exitcode
    who = f"{worker.process.name} (pid {worker.process.pid})"
    again = "The same command goes on from the last whole shard"
    if code is None or code >= 0:
        script = 'A script of your own that asks for several must begin its work under `if __name__ == "__main__":`'
        return WorkerError(f"{who} ended with exit code {code}; what it said stands above. {script}. {again}.")
    name = signal.Signals(-code).name
    why = ", as the system does where memory runs out: free some, or use fewer --workers" if name == "SIGKILL" else ""
    return WorkerError(f"{who} was killed by {name}{why}. {again}.")
