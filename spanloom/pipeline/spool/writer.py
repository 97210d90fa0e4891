"""The process that makes a run's shards of a stream ahead of it, so that the device does not wait for them.

    python -m spanloom.pipeline.spool.writer < pickle of (sys.path, task, vocabulary, directory)

It holds the spool's lock as long as it lives, and ends with its standard input: with the process that began it, whoever
kills that. What it has to say are lines of standard output. Where it fails whoever needs the next shard makes it, and
meets the error where it can be raised.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from spanloom.pipeline.durable import locked
from spanloom.pipeline.spool.index import SpoolIndex
from spanloom.pipeline.spool.reading import Say
from spanloom.pipeline.spool.spool import Spool, lock_of
from spanloom.settings.task import Task
from spanloom.vocabularies.vocabulary import Vocabulary

AHEAD = 2
"""Shards made beyond the last that somebody reads."""

_LOOK_EVERY = 0.05
_SECONDS_TO_BEGIN = 60.0
_SECONDS_TO_END = 10.0
_BEGUN = "\0begun"


@contextlib.contextmanager
def writing(task: Task, vocabulary: Vocabulary, directory: Path, say: Say) -> Iterator[None]:
    """Has a process make the shards of the spool in this directory as long as the context lasts.

    It begins once that process has the spool's lock, or waits for another that has it: nobody else shall bring the
    stream to where it was meanwhile.
    """
    command = [sys.executable, "-m", "spanloom.pipeline.spool.writer"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    begun = threading.Event()
    listener = threading.Thread(target=_listen, args=(process.stdout, say, begun), name="spool", daemon=True)
    listener.start()
    try:
        with contextlib.suppress(BrokenPipeError):
            pickle.dump((list(sys.path), task, vocabulary, directory), process.stdin)
            process.stdin.flush()
        begun.wait(_SECONDS_TO_BEGIN)
        yield
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.terminate()  # a shard that is half made is no shard
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.join(_SECONDS_TO_END)


def _listen(lines: IO[bytes], say: Say, begun: threading.Event) -> None:
    with lines:
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\n")
            if text == _BEGUN:
                begun.set()
            else:
                say(text)
    begun.set()  # or ended, having said why


def run(task: Task, vocabulary: Vocabulary, directory: Path, say: Say) -> None:
    """Makes shards whenever fewer than `AHEAD` lie before the one that is read. Never returns, but may raise."""
    spool = Spool(task, vocabulary, SpoolIndex(directory), say)
    with locked(lock_of(directory), lambda: say(_BEGUN)):
        say(_BEGUN)
        spool.index.refresh()
        while True:
            wanted = spool.index.wanted()
            if 0 <= wanted < spool.index.last.shard and not all(p.exists() for p in spool.index.paths(wanted)):
                spool.make(wanted)
            elif spool.index.last.shard <= wanted + AHEAD:
                spool.make(spool.index.last.shard)
            else:
                time.sleep(_LOOK_EVERY)


def _main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the run ends this one
    path, task, vocabulary, directory = _received(sys.stdin.buffer)
    sys.path[:] = path
    threading.Thread(target=_end_with, args=(sys.stdin.buffer,), daemon=True).start()
    try:
        run(task, vocabulary, directory, _say)
    except Exception as error:
        what = " ".join(str(error).split()) or type(error).__name__
        _say(f"the process that makes the stream of task {task.name!r} ends, and the run goes on by itself: {what}")
    return 1


def _received(file: IO[bytes]) -> tuple[list[str], Task, Vocabulary, Path]:
    received: tuple[list[str], Task, Vocabulary, Path] = pickle.load(file)
    return received


def _end_with(file: IO[bytes]) -> None:
    file.read()
    os._exit(0)


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(" ".join(text.split()), flush=True)


if __name__ == "__main__":
    sys.exit(_main())
