"""One start of a launch: its hosts are made ready, its processes started, and watched until all have ended."""

import base64
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spanloom.launch.calls import Call, HostError, ask, each
from spanloom.launch.failure import Ended, how
from spanloom.launch.hosts import GoneError, HostsError, Process, processes_of
from spanloom.launch.preflight import coordinator_answers, look
from spanloom.launch.processes import Place, build, coordinator, process_key, send, start_all, start_request
from spanloom.launch.record import Launch, LaunchError
from spanloom.launch.targets import hosts_of

SILENT_SECONDS = 40.0
"""A line on which nothing comes for so long is cut, and another one tried."""
LOST_SECONDS = 90.0
"""A process of which nothing is heard for so long is lost where others have failed, or its machine is known to be."""
UNREACHABLE_SECONDS = 1800.0
"""After so long it is in any case: before, it may be this machine that has lost its network, while training goes on."""
AGAIN_SECONDS = 2.0
"""Between one line to a host and the next."""
ASK_SECONDS = 30.0
"""Between one question which machines there are and the next."""
GRACE_SECONDS = 20.0
"""Once one has failed, the others have so long to notice; then they are stopped."""
SAVE_SECONDS = 600.0
"""A process that is told to stop has so long to save."""
KILL_SECONDS = 15.0
"""The same after a failure, when nothing can be saved any more."""
FIRST_WAIT = 2.0
LONGEST_WAIT = 300.0
"""Seconds before another start; doubled each time that the run got no further."""


@dataclass(frozen=True)
class Outcome:
    """How a start ended."""

    ended: dict[int, Ended]
    names: dict[int, str]
    step: str | None = None
    """The newest checkpoint of the run."""


@dataclass
class Watched:
    """A process under way."""

    process: Process
    heard: float = field(default_factory=time.monotonic)
    called: float = field(default_factory=time.monotonic)
    """When the line to it was made."""
    call: Call | None = None
    said: str = "running"
    missed: bool = False
    """Whether it was said that nothing is heard of it."""


class Attempt:
    """One start. `say` is told what happens, `tell` how the processes are; `stopping` says that all are to stop."""

    def __init__(
        self,
        launch: Launch,
        number: int,
        say: Callable[[str], object],
        tell: Callable[[Sequence[str]], object],
        stopping: Callable[[], bool],
    ) -> None:
        self.launch, self.number = launch, number
        self.say, self.tell, self.stopping = say, tell, stopping
        self._events: queue.Queue[tuple[int, Ended]] = queue.Queue()
        self._watched: dict[int, Watched] = {}
        self._ended: dict[int, Ended] = {}
        self._told: set[int] = set()
        self._asking = threading.Lock()
        self._asked = float("-inf")
        self._there: dict[str, str] | None = None
        """Addresses of the hosts that there are, once somebody had to ask."""

    def run(self) -> Outcome:
        """Raises HostError, HostsError or LaunchError where it does not come to a start; nothing runs then."""
        processes, places = self._ready()
        self._go_on()
        address = coordinator(self.launch, [process.host for process in processes])
        count = len(processes)
        requests = {
            one: start_request(self.launch, self.number, one, count, places[one.host.name], address)
            for one in processes
        }
        begun: list[Process] = []
        try:
            start_all(requests, self.launch.python, begun.append)
        except HostError:
            self._stop(begun, KILL_SECONDS)
            raise
        self.say(f"started {count} process{'es' if count > 1 else ''}")
        for process in processes:
            self._watched[process.number] = Watched(process)
            threading.Thread(target=self._watch, args=(self._watched[process.number],), daemon=True).start()
        self._tell_all()
        self._until_all_ended()
        return Outcome(dict(self._ended), {one.number: one.name for one in processes}, self._last_step(processes))

    def _ready(self) -> tuple[tuple[Process, ...], dict[str, Place]]:
        launch, say = self.launch, self.say
        hosts = hosts_of(launch)
        processes = processes_of(hosts)
        say(f"{len(processes)} processes on {', '.join(host.name for host in hosts[:8])}{' ...' if hosts[8:] else ''}")
        say(f"sending {launch.about}")
        bundles = send(launch, hosts, say)
        self._go_on()
        pythons = build(launch, hosts, say)
        self._go_on()
        places = {h.name: Place(b, p) for h, b, p in zip(hosts, bundles, pythons, strict=True)}
        request = {"home": launch.home, "out": launch.out}
        say("all have " + look(hosts, launch.python, request, [places[host.name] for host in hosts]))
        if len(processes) > 1:
            address, port = coordinator(launch, hosts)
            coordinator_answers(hosts, launch.python, address, port)
            say(f"the coordinator {address}:{port} can be reached from all")
        return processes, places

    def _go_on(self) -> None:
        if self.stopping():
            raise LaunchError("told to stop before anything ran")

    def _watch(self, watched: Watched) -> None:
        """Take a process's output until it has ended, on as many lines as it takes."""
        number, launch, offset = watched.process.number, self.launch, 0
        while not self._is_lost(watched):
            request = {"do": "watch", "offset": offset, **process_key(launch, self.number, number)}
            try:
                watched.called = time.monotonic()
                watched.call = Call(watched.process.host, launch.python, request)
                with contextlib.closing(watched.call) as call:
                    for message in call:
                        watched.heard = time.monotonic()
                        if "log" in message:
                            chunk = base64.b64decode(message["log"])
                            self._write(number, chunk)
                            offset += len(chunk)
                        elif ended := self._ended_by(message):
                            self._events.put((number, ended))
                            return
            except HostError:
                pass  # tried again
            time.sleep(AGAIN_SECONDS)
        self._events.put((number, Ended(None, time.time())))

    def _write(self, number: int, chunk: bytes) -> None:
        try:
            with self.launch.log(self.number, number).open("ab") as log:
                log.write(chunk)
        except OSError as error:
            self.say(f"the output of process {number} cannot be written here ({error}); its host keeps it")

    def _is_lost(self, watched: Watched) -> bool:
        """Whether nothing more will be heard of a process."""
        silent = time.monotonic() - watched.heard
        if silent > LOST_SECONDS and not watched.missed:
            watched.missed = True
            self.say(f"nothing is heard of {watched.process.name}; trying on")
        if silent > UNREACHABLE_SECONDS:
            return True
        return silent > LOST_SECONDS and (self._failed() or self._is_gone(watched.process))

    def _is_gone(self, process: Process) -> bool:
        """Whether the machine of a process was taken away, as far as those who rent it out say."""
        with self._asking:
            if time.monotonic() > self._asked + ASK_SECONDS:
                self._asked = time.monotonic()
                try:
                    self._there = {host.name: host.address for host in hosts_of(self.launch)}
                except GoneError:
                    self._there = {}
                except HostsError:
                    pass  # this machine may have lost its network
        return self._there is not None and self._there.get(process.host.name) != process.host.address

    def _ended_by(self, message: dict[str, Any]) -> Ended | None:
        if "done" not in message:
            return None
        done = message["done"]
        if done["state"] == "ended":
            return Ended(int(done["code"]), time.time() - done["ago"])
        return Ended(None, time.time())

    def _until_all_ended(self) -> None:
        deadline, asked = float("inf"), False
        while len(self._ended) < len(self._watched):
            try:
                number, ended = self._events.get(timeout=0.3)
                self._note(number, ended)
            except queue.Empty:
                pass
            if self._failed() and deadline == float("inf"):
                deadline = time.monotonic() + GRACE_SECONDS
            if self.stopping() and not asked:
                asked = True
                self.say("stopping: every process saves and ends")
                self._stop_running(SAVE_SECONDS)
            elif time.monotonic() > deadline:
                deadline = time.monotonic() + 10 * GRACE_SECONDS
                self.say("stopping those that still run")
                self._stop_running(KILL_SECONDS)
            for watched in self._watched.values():
                silent = time.monotonic() - max(watched.heard, watched.called)
                if watched.call is not None and silent > SILENT_SECONDS:
                    watched.call.kill()

    def _note(self, number: int, ended: Ended) -> None:
        told = Ended(ended.code, ended.at, stopped=number in self._told)
        self._ended[number] = told
        self._watched[number].said = "done" if told.code == 0 else how(told.code)
        if told.code != 0:
            self.say(f"{self._watched[number].process.name} {how(told.code)}")
        self._tell_all()

    def _tell_all(self) -> None:
        self.tell([f"{one.process.name}: {one.said}" for one in self._watched.values()])

    def _failed(self) -> bool:
        return any(end.code != 0 for end in self._ended.values())

    def _stop_running(self, grace: float) -> None:
        running = [one.process for number, one in self._watched.items() if number not in self._ended]
        self._told |= {process.number for process in running}
        threading.Thread(target=self._stop, args=(running, grace), daemon=True).start()

    def _stop(self, processes: Sequence[Process], grace: float) -> None:
        stop_processes(self.launch, self.number, processes, grace, self.say)

    def _last_step(self, processes: Sequence[Process]) -> str | None:
        try:
            key = process_key(self.launch, self.number, 0)
            return ask(processes[0].host, self.launch.python, {"do": "status", **key}).get("step")
        except HostError:
            return None


def stop_processes(
    launch: Launch, attempt: int, processes: Sequence[Process], grace: float, say: Callable[[str], object]
) -> None:
    """Stop processes, wherever they are; what cannot be reached is said."""

    def stop(process: Process) -> None:
        request = {"do": "stop", "grace": grace, **process_key(launch, attempt, process.number)}
        ask(process.host, launch.python, request, seconds=grace + 60)

    try:
        each(processes, stop)
    except HostError as error:
        say(f"could not be stopped:\n{error}")
