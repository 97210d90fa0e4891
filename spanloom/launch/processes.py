"""The processes of a launch on its hosts: what is sent and built for them, and with which words each is started."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spanloom.launch.calls import HostError, ask, each
from spanloom.launch.hosts import Host, Process
from spanloom.launch.record import Launch, LaunchError

SEND_SECONDS = 1800.0
BUILD_SECONDS = 3600.0
SIMULATED = "--xla_force_host_platform_device_count"


@dataclass(frozen=True)
class Place:
    """Where a host has what was sent to it."""

    bundle: str
    python: str
    """Which trains."""


def send(launch: Launch, hosts: Sequence[Host], say: Callable[[str], object]) -> list[str]:
    """The bundle on every host; where it is there. Raises HostError."""
    data = (launch.folder / "bundle.tar.gz").read_bytes()
    base = {"do": "unpack", "hash": launch.bundle, "home": launch.home}

    def to(host: Host) -> str:
        answer = ask(host, launch.python, base)
        if not answer["there"]:
            answer = ask(host, launch.python, {**base, "size": len(data)}, data, seconds=SEND_SECONDS)
            say(f"{host.name}: received {len(data) / 2**20:.1f} MiB")
        return str(answer["place"])

    return each(hosts, to)


def build(launch: Launch, hosts: Sequence[Host], say: Callable[[str], object]) -> list[str]:
    """The Python of every host that trains: of the environment of the lock, built where it is not there yet."""
    if not launch.environment:
        return [launch.python] * len(hosts)
    request = {
        "do": "environment",
        "name": launch.environment,
        "home": launch.home,
        "requirements": launch.requirements,
        "constraints": launch.constraints,
    }

    def on(host: Host) -> str:
        answer = ask(host, launch.python, request, seconds=BUILD_SECONDS, heard=say)
        say(f"{host.name}: environment {launch.environment} {'built' if answer['built'] else 'is there'}")
        return str(answer["python"])

    return each(hosts, on)


def coordinator(launch: Launch, hosts: Sequence[Host]) -> tuple[str, int]:
    """Host and port where the first process is to be found. Raises LaunchError."""
    if launch.coordinator:
        host, _, port = launch.coordinator.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65535:
            raise LaunchError(f"--coordinator {launch.coordinator!r}: give HOST:PORT, a port from 1 to 65534")
        return host, int(port)
    return hosts[0].address, launch.port


def start_request(
    launch: Launch, attempt: int, process: Process, count: int, place: Place, address: tuple[str, int]
) -> dict[str, Any]:
    """What a host is asked to start, values of `--env` included."""
    words = train_words(launch, place)
    if count > 1:
        words += ["--processes", str(count), "--process", str(process.number)]
        words += ["--coordinator", f"{address[0]}:{address[1]}", "--connect-timeout", f"{launch.connect_timeout:g}"]
    return {
        "do": "start",
        **process_key(launch, attempt, process.number),
        "argv": words,
        "directory": os.path.join(place.bundle, launch.directory),
        "env": environment_of(launch, place, not process.host.command),
    }


def process_key(launch: Launch, attempt: int, number: int) -> dict[str, Any]:
    """What a host knows a process by."""
    return {"home": launch.home, "launch": launch.id, "attempt": attempt, "process": number, "out": launch.out}


def train_words(launch: Launch, place: Place) -> list[str]:
    """The command of one process among none; the recipe is the bundle's own."""
    recipe, *flags = launch.words
    recipe = os.path.join(place.bundle, recipe) if recipe.startswith("code/") else recipe
    # -P: a recipe's folder may hold a numbers.py, which must not take the place of Python's own.
    return [place.python, "-P", "-m", "spanloom.cli.main", "train", recipe, *flags]


def environment_of(launch: Launch, place: Place, here: bool) -> dict[str, str]:
    """Variables of a process, beside those that its host gives it. Raises LaunchError for one that is not set."""
    if missing := [name for name in launch.env if name not in os.environ]:
        raise LaunchError(f"--env {' '.join(missing)}: not set here: export it, and give the command again")
    found = {name: os.environ[name] for name in launch.env}
    own = {"SPANLOOM_LAUNCH": launch.id, "PYTHONUNBUFFERED": "1", "PYTHONPATH": f"{place.bundle}/package"}
    if here:
        own["JAX_PLATFORMS"] = "cpu"  # several processes cannot share a machine's accelerators
    if launch.devices:
        own["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '') if here else ''} {SIMULATED}={launch.devices}".strip()
    return {**found, **own}


def start_all(requests: Mapping[Process, dict[str, Any]], python: str, begun: Callable[[Process], object]) -> None:
    """Start every process. Raises HostError, when those that began are told to `begun`."""

    def start(process: Process) -> None:
        try:
            ask(process.host, python, requests[process])
        except HostError as error:
            begun(process)  # perhaps: its answer may have been lost
            raise HostError(f"process {process.number}: {error}") from None
        begun(process)

    each(list(requests), start)
