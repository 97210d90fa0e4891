"""Who is there: every process of a run holds a line to the first one, from before JAX connects them until the end.

JAX's own service says neither which process was not started nor, in words, which one died. Here the first process
listens, the others call; a line that breaks is a process that is gone, at once where it was killed, and once the
network gives up on it where its machine is. Messages are JSON objects, one a line.
"""

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RETRY_SECONDS = 0.2
SILENCE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""A machine that answers nothing for 30 s is gone. By name, for systems lack some of them: macOS the first."""


class RollCallError(RuntimeError):
    """A process is missing, or there are two of one number; the message says which and what to do."""


FAREWELL_SECONDS = 3.0
"""The first process leaves so much later than the others."""
ALIVE_SECONDS = 5.0
"""Every process says so often that it is there."""
SILENT_SECONDS = 40.0
"""A process that says nothing for so long counts as gone: stopped, or its machine hangs."""


@dataclass
class _Line:
    """A connection, and what of a message has come so far."""

    socket: socket.socket
    process: int = -1
    """Who is at the other end."""
    received: bytes = b""
    done: bool = False
    """The other end has said goodbye."""
    heard: float = field(default_factory=time.monotonic)
    """When it last said anything."""

    def send(self, message: dict[str, Any]) -> None:
        """A message; to one that is gone, nothing."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have come whole; None where the line is broken or talks something else."""
        try:
            chunk = self.socket.recv(65536)
            *whole, self.received = (self.received + chunk).split(b"\n")
            messages = [json.loads(line) for line in whole]
        except (OSError, ValueError):
            return None
        return messages if chunk and all(isinstance(message, dict) for message in messages) else None


@dataclass
class RollCall:
    """The lines between the processes of a run. Make one with `call_roll`."""

    process: int
    """This process, from 0."""
    processes: int
    """How many there are."""
    lines: list[_Line]
    """To all others in the first process; to the first one in the others."""
    on_gone: Callable[[int, str], object]
    """Called from a thread, with the number of a process that is gone, and why."""
    _waiting: dict[str, dict[int, str]] = field(default_factory=dict)
    _gathered: dict[str, dict[int, str]] = field(default_factory=dict)
    _released: set[str] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closing: bool = False

    def watch(self) -> None:
        """From now on `on_gone` is called when a process goes without a goodbye, or is silent for too long."""
        threading.Thread(target=self._listen, name="roll call", daemon=True).start()
        threading.Thread(target=self._tell, name="alive", daemon=True).start()

    def barrier(self, name: str) -> None:
        """Until every process has come here; a name may come again once that is over. May be called in any thread."""
        self.gather(name, "")

    def gather(self, name: str, value: str) -> list[str]:
        """A barrier at which every process says something: what all said, in their order, in the first one alone."""
        if self.process == 0:
            self._arrived(name, 0, value)
        else:
            self.lines[0].send({"at": name, "value": value})
        with self._changed:
            self._changed.wait_for(lambda: name in self._released)
            self._released.discard(name)
            said = self._gathered.pop(name, {})
        return [said[process] for process in sorted(said)]

    def fail(self, why: str) -> None:
        """Tell the others that this process ends, and why."""
        self._closing = True
        for line in self.lines:
            line.send({"gone": self.process, "why": why})

    def close(self) -> None:
        """Say goodbye: from now on nobody is missed here, nor this process there."""
        self._closing = True
        for line in self.lines:
            line.send({"done": self.process})
            with contextlib.suppress(OSError):
                line.socket.shutdown(socket.SHUT_WR)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for line in self.lines:
                selector.register(line.socket, selectors.EVENT_READ, line)
            while selector.get_map():
                for key, _ in selector.select(ALIVE_SECONDS):
                    line = key.data
                    line.heard = time.monotonic()
                    messages = line.receive()
                    for message in messages or ():
                        self._heard(line, message)
                    if messages is None:
                        selector.unregister(line.socket)
                        line.socket.close()
                        if not line.done:
                            self._gone(line.process, "killed, or its machine is down or out of reach")
                for line in [key.data for key in selector.get_map().values()]:
                    if not line.done and time.monotonic() - line.heard > SILENT_SECONDS:
                        self._gone(line.process, f"silent for {SILENT_SECONDS:.0f} s: stopped, or out of reach")

    def _tell(self) -> None:
        while not self._closing:
            for line in self.lines:
                line.send({"alive": self.process})
            time.sleep(ALIVE_SECONDS)

    def _heard(self, line: _Line, message: dict[str, Any]) -> None:
        if "done" in message:
            line.done = True
        elif "gone" in message:
            line.done = True
            self._gone(int(message["gone"]), str(message.get("why")))
        elif "at" in message:
            self._arrived(str(message["at"]), line.process, str(message.get("value")))
        elif "released" in message:
            self._release(str(message["released"]))

    def _arrived(self, name: str, process: int, value: str) -> None:
        with self._changed:
            there = self._waiting.setdefault(name, {})
            there[process] = value
            complete = len(there) == self.processes
            if complete:
                self._gathered[name] = self._waiting.pop(name)
        if complete:
            for line in self.lines:
                line.send({"released": name})
            self._release(name)

    def _release(self, name: str) -> None:
        with self._changed:
            self._released.add(name)
            self._changed.notify_all()

    def _gone(self, process: int, why: str) -> None:
        if self._closing:
            return
        self._closing = True
        if self.process == 0:
            for line in self.lines:
                line.send({"gone": process, "why": why})
            time.sleep(FAREWELL_SECONDS)  # JAX's service lives here: the others leave first, in their own words
        self.on_gone(process, why)


def call_roll(
    address: tuple[str, int], process: int, processes: int, timeout: float, on_gone: Callable[[int, str], object]
) -> RollCall:
    """Wait until all processes are there; the first one listens at `address`.

    Raises RollCallError in every process that came, naming those that did not within `timeout` seconds.
    """
    if process == 0:
        lines = _answer_all(address, processes, timeout)
    else:
        lines = [_call_first(address, process, processes, timeout)]
    call = RollCall(process, processes, lines, on_gone)
    call.watch()
    return call


def _answer_all(address: tuple[str, int], processes: int, timeout: float) -> list[_Line]:
    there: dict[int, _Line] = {}
    deadline = time.monotonic() + timeout
    try:
        listener = socket.create_server(("", address[1]), backlog=processes)
    except OSError as error:
        raise RollCallError(
            f"process 0 cannot listen at port {address[1]} ({error.strerror}): is another run using it? Give all "
            "processes another port in --coordinator"
        ) from None
    with listener:
        while len(there) < processes - 1:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection = listener.accept()[0]
            except TimeoutError:
                missing = sorted({*range(1, processes)} - there.keys())
                _turn_away([*there.values()], _not_there(missing, processes, timeout, address))
            line = _Line(_alive(connection))
            connection.settimeout(5.0)
            hello = (line.receive() or [{}])[0]
            line.process = hello.get("process", -1)
            if hello.get("of") != processes:
                if "of" in hello:
                    problem = f"process 0 was started as one of {processes}, process {line.process} as one of "
                    _turn_away([line, *there.values()], f"{problem}{hello['of']}: --processes must be equal everywhere")
                connection.close()  # somebody else who knocks at a port
            elif line.process in there or not 0 < line.process < processes:
                problem = f"two processes were started as process {line.process} of {processes}"
                _turn_away(
                    [line, *there.values()], f"{problem}: each needs a --process of its own, 0 to {processes - 1}"
                )
            else:
                connection.settimeout(None)
                there[line.process] = line
    for line in there.values():
        line.send({"complete": True})
    return [there[number] for number in sorted(there)]


def _call_first(address: tuple[str, int], process: int, processes: int, timeout: float) -> _Line:
    deadline = time.monotonic() + timeout
    where = f"{address[0]}:{address[1]}"
    while True:
        try:
            connection = socket.create_connection(address, timeout=max(deadline - time.monotonic(), 0.1))
            break
        except socket.gaierror as error:
            if error.errno != socket.EAI_AGAIN or time.monotonic() >= deadline:  # names of a cluster may come late
                raise RollCallError(f"--coordinator {where}: no machine of that name ({error.strerror})") from None
            time.sleep(RETRY_SECONDS)
        except OSError:
            if time.monotonic() >= deadline:
                raise RollCallError(_not_there([0], processes, timeout, address)) from None
            time.sleep(RETRY_SECONDS)
    line = _Line(_alive(connection), 0)
    line.send({"process": process, "of": processes})
    connection.settimeout(timeout + 10.0)  # the first one, which may have begun only now, waits so long for the others
    messages: list[dict[str, Any]] | None = []
    while messages == []:
        messages = line.receive()
    if messages is None:
        raise RollCallError(f"process 0 of {processes} at {where} ended, or is no process of this run: see its output")
    if "refused" in messages[0]:
        raise RollCallError(str(messages[0]["refused"]))
    connection.settimeout(None)
    return line


def _turn_away(lines: list[_Line], why: str) -> None:
    for line in lines:
        line.send({"refused": why})
    raise RollCallError(why)


def _not_there(missing: list[int], processes: int, timeout: float, address: tuple[str, int]) -> str:
    flags = f"--coordinator {address[0]}:{address[1]} --processes {processes} --process"
    names = ", ".join(map(str, missing))
    which = f"process {names} of {processes}" if len(missing) == 1 else f"processes {names} of {processes}"
    each = missing[0] if len(missing) == 1 else "N"
    return (
        f"{which} did not connect in {timeout:.0f} s: start {'it' if len(missing) == 1 else 'them'} with this very "
        f"command and {flags} {each} (and see that port {address[1]} of {address[0]} can be reached from there)"
    )


def _alive(connection: socket.socket) -> socket.socket:
    """The connection, so set that a machine out of reach is noticed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in SILENCE.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
