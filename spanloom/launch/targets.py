"""What `--on` names: local:4, ssh:hosts.txt, slurm[:NODES], tpu:NAME[@ZONE], sky[:NODES]."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from spanloom.launch.hosts import Host, HostsError, in_file, this_machine
from spanloom.launch.record import Launch

WAYS = "local:4, ssh:hosts.txt, slurm:4, tpu:NAME@ZONE or sky:4"
MOST = 1024


@dataclass(frozen=True)
class Target:
    """Where a launch goes."""

    kind: str
    """local, ssh, slurm, tpu or sky."""
    name: str
    """What stands after the colon."""
    zone: str = ""

    @property
    def count(self) -> int:
        """Processes of local, nodes of slurm and sky; 0: unsaid."""
        return int(self.name or 0)


def target(text: str) -> Target:
    """Read `--on`. Raises HostsError for what it cannot be."""
    kind, colon, name = text.partition(":")
    if kind not in ("local", "ssh", "slurm", "tpu", "sky"):
        raise HostsError(f"--on {text!r}: give {WAYS}")
    if kind in ("local", "slurm", "sky"):
        if (colon or kind == "local") and not (name.isascii() and name.isdecimal() and 1 <= int(name) <= MOST):
            raise HostsError(f"--on {text!r}: give a number from 1 to {MOST}, such as {kind}:4")
        return Target(kind, name)
    if not name:
        raise HostsError(
            f"--on {text!r}: give {'a file of hosts, ssh:hosts.txt' if kind == 'ssh' else 'tpu:NAME[@ZONE]'}"
        )
    if kind == "ssh":
        return Target(kind, os.path.abspath(os.path.expanduser(name)))
    name, at, zone = name.partition("@")
    if not re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name) or (at and not re.fullmatch(r"[a-z0-9-]+", zone)):
        raise HostsError(
            f"--on {text!r}: a TPU's name has small letters, digits and -, and its zone is like us-central2-b"
        )
    return Target(kind, name, zone)


def hosts_of(launch: Launch) -> tuple[Host, ...]:
    """The hosts as they are now: a preempted slice comes back with other addresses. Raises HostsError."""
    where = target(launch.on)
    if where.kind == "local":
        return this_machine(where.count)
    if where.kind == "ssh":
        try:
            return in_file(Path(where.name), launch.ssh_config or None)
        except OSError as error:
            raise HostsError(
                f"--on ssh:{where.name}: {error.strerror}: write a file with a host on each line"
            ) from None
    from spanloom.launch.tpu import tpu_hosts

    return tpu_hosts(where.name, where.zone)
