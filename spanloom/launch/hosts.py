"""The machines of a launch: how each is reached, and how many processes it takes."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

BOOT = "import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),'on_host','exec'))"
"""What Python on a host is started with: it reads the program (`on_host`), which reads the request."""
PATIENT = ("ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=3")
"""Options of ssh: it gives up in bounded time."""
_LINE = re.compile(r"(?:(?P<user>[^\s@:\[\]]+)@)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s@:\[\]]+)(?::(?P<port>\d+))?")


class HostsError(ValueError):
    """The hosts cannot be found out; the message names cause and fix."""


class GoneError(HostsError):
    """The machines were taken away: preempted, stopped or deleted."""


@dataclass(frozen=True)
class Host:
    """One machine."""

    name: str
    """As users know it."""
    address: str
    """Where the others reach it."""
    command: tuple[str, ...] = ()
    """Words that run the shell line which follows them there; none for this machine."""
    slots: int = 1
    """Processes that it takes."""

    def words(self, python: str) -> list[str]:
        """The command that takes a request on its standard input."""
        if not self.command:
            return [str(Path(python).expanduser()), "-c", BOOT]
        return [*self.command, f"{shell_path(python)} -c {shlex.quote(BOOT)}"]


@dataclass(frozen=True)
class Process:
    """One process of a launch."""

    number: int
    """From 0."""
    host: Host
    slot: int = 0
    """Which of its host's it is, from 0."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"process {self.number} on {self.host.name}"


def processes_of(hosts: tuple[Host, ...]) -> tuple[Process, ...]:
    """All processes, numbered through host by host."""
    places = [(host, slot) for host in hosts for slot in range(host.slots)]
    return tuple(Process(number, host, slot) for number, (host, slot) in enumerate(places))


def shell_path(path: str) -> str:
    """A path quoted for a shell that is still to find the home directory in it."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def this_machine(processes: int) -> tuple[Host, ...]:
    """`local:N`."""
    return (Host("this machine", "127.0.0.1", slots=processes),)


def python_here() -> str:
    """The interpreter of this process, which has all that a process on this machine needs."""
    return sys.executable


def in_file(path: Path, ssh_config: str | None) -> tuple[Host, ...]:
    """The hosts of a file, a line each: `[user@]host[:port] [processes]`, with comments after #.

    Raises HostsError, with file and line, for what is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise HostsError(
            f"{path} is no text file: it is to have a line [user@]host[:port] [processes] a host"
        ) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            hosts.append(_host(words, f"{path}:{number}", ssh_config))
    if not hosts:
        raise HostsError(f"{path} names no host: write a line [user@]host[:port] [processes] for each")
    names = [host.name for host in hosts]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise HostsError(f"{path} has {twice} twice: for two processes there, write `{twice} 2`")
    return tuple(hosts)


def _host(words: list[str], where: str, ssh_config: str | None) -> Host:
    found = _LINE.fullmatch(words[0])
    slots = words[1] if len(words) == 2 else "1"
    if not found or len(words) > 2 or words[0].startswith("-") or found["host"].startswith("-"):
        raise HostsError(f"{where}: {' '.join(words)!r} is no host: write [user@]host[:port] [processes]")
    if not slots.isascii() or not slots.isdecimal() or not 1 <= int(slots) <= 1024:
        raise HostsError(f"{where}: {slots!r} processes: write a number from 1 to 1024")
    port = found["port"]
    if port and not 0 < int(port) < 65536:
        raise HostsError(f"{where}: port {port}: ports are 1 to 65535")
    address = found["host"].strip("[]")
    return Host(words[0], address, ssh_words(found["user"], address, port, ssh_config), int(slots))


def ssh_words(user: str | None, address: str, port: str | None, config: str | None) -> tuple[str, ...]:
    """The words before the line that is run by ssh. Keys must do without a password: nobody is there to type it."""
    options = [word for option in ("BatchMode=yes", *PATIENT) for word in ("-o", option)]
    options += ["-F", config] if config else []
    options += ["-p", port] if port else []
    return ("ssh", "-T", *options, "--", f"{user}@{address}" if user else address)
