"""Requests to hosts: one program (`on_host`) that each of them runs, all at once, each with its time."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from spanloom.launch import on_host
from spanloom.launch.hosts import Host

AT_ONCE = 64
"""Hosts that are asked at the same time."""
TAIL = 1500
"""Characters of a failed command's own words that an error repeats."""


class HostError(RuntimeError):
    """A host did not do what it was asked; the message names it, the cause and the fix."""


class Call:
    """One request under way: its messages come as they are said."""

    def __init__(
        self, host: Host, python: str, request: dict[str, Any], payload: bytes = b"", *, keep_open: bool = False
    ) -> None:
        self.host, self.python = host, python
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the call)
        program = Path(on_host.__file__).read_bytes()
        self._given = b"%d\n%s%s\n%s" % (len(program), program, json.dumps(request).encode(), payload)
        self._keep_open, self.timed_out = keep_open, False
        try:
            self._process = subprocess.Popen(
                host.words(python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # Ctrl-C is for the launch to answer
            )
        except FileNotFoundError as error:
            self._errors.close()
            raise HostError(f"{host.name}: {error.filename} is not installed here, or not on the PATH") from None
        threading.Thread(target=self._give, daemon=True).start()

    def _give(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(self._given)
            self._process.stdin.flush()
            if not self._keep_open:
                self._process.stdin.close()
        except (OSError, ValueError):
            return  # the host has gone, which its answers will say

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace")
            # A login script may say something of its own, and a line that is cut ends in half a message.
            if text.startswith(on_host.MARK) and text.endswith("\n"):
                yield json.loads(text[len(on_host.MARK) :])

    def close(self) -> None:
        """End the call, whatever it is at."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._end()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def kill(self) -> None:
        """End the call because its time is over."""
        self.timed_out = True
        self._end()

    def _end(self) -> None:
        if self._process.returncode is not None:
            return  # its number may be another process's by now
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # gcloud has an ssh of its own, which holds our pipes

    def why_broken(self, seconds: float) -> str:
        """Why a call ended without an answer, and what helps."""
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-TAIL:]
        name = self.host.name
        if self.timed_out:
            return f"{name}: no answer in {seconds:.0f} s" + (f": {said}" if said else "")
        if code == 127 or ("not found" in said and code in (1, 127)):
            return (
                f"{name}: {said or 'not found'}: is {self.python} there? Install it, or name another one with --python "
                "(`uv python install 3.11` needs no root, and puts it into ~/.local/bin)"
            )
        if self.host.command[:1] == ("ssh",) and code == 255:
            by_hand = shlex.join([*(word for word in self.host.command if word != "-T"), "true"])
            return f"{name} cannot be reached by ssh ({said or 'it said nothing'}): try it by hand: {by_hand}"
        return f"{name}: its command ended with exit code {code}" + (f": {said}" if said else "")


def ask(
    host: Host,
    python: str,
    request: dict[str, Any],
    payload: bytes = b"",
    *,
    seconds: float = 60.0,
    heard: Callable[[str], object] = lambda text: None,
) -> dict[str, Any]:
    """The answer to a request. `heard` is told what the host says on the way. Raises HostError."""
    call = Call(host, python, request, payload)
    timer = threading.Timer(seconds, call.kill)
    timer.start()
    try:
        for message in call:
            if "done" in message:
                answer: dict[str, Any] = message["done"]
                return answer
            if "error" in message:
                raise HostError(f"{host.name}: {message['error']}")
            if "says" in message:
                heard(f"{host.name}: {message['says']}")
        raise HostError(call.why_broken(seconds))
    finally:
        timer.cancel()
        call.close()


def each(things: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
    """`do` of every thing, at once; their results in order. Raises one HostError with a line for each that failed."""
    if not things:
        return []

    def attempt(thing: Any) -> Any:
        try:
            return do(thing)
        except HostError as error:
            return error

    with ThreadPoolExecutor(min(len(things), AT_ONCE)) as pool:
        results = list(pool.map(attempt, things))
    failed = [str(result) for result in results if isinstance(result, HostError)]
    if failed:
        raise HostError("\n".join(failed))
    return results
