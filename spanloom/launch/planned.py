"""Every command that a launch would run, in words, before any is: `--dry-run`."""

import os
import shlex
from collections.abc import Iterator

from spanloom.launch import buckets, tpu
from spanloom.launch.hosts import BOOT, Host, processes_of, shell_path
from spanloom.launch.processes import SIMULATED, Place, coordinator, train_words
from spanloom.launch.record import Launch


def commands(launch: Launch, hosts: tuple[Host, ...]) -> Iterator[str]:
    """Lines that a shell takes, with what they do as comments; of environment variables the names alone."""
    bundle = f"{launch.home}/bundles/{launch.bundle}"
    yield f"# code: {launch.about}"
    for host in hosts:
        *words, last = host.words(launch.python)
        yield f"# {host.name} takes every request on the standard input of this (... is spanloom.launch.hosts.BOOT):"
        yield shlex.join([*words, last.replace(shlex.quote(BOOT), "...").replace(BOOT, "...")])
    yield f"# on each host: unpack the code to {bundle}, and check its hash"
    python = launch.python
    if launch.environment:
        place = f"{launch.home}/environments/{launch.environment}"
        yield "# on each host, unless it is there:"
        there = shell_path(place)
        yield f"{shell_path(launch.python)} -m venv {there}"
        yield f"{there}/bin/python -m pip install -r {there}/requirements.txt -c {there}/constraints.txt"
        yield f"#   requirements: {', '.join(launch.requirements)}"
        python = f"{place}/bin/python"
    yield "# preflight on each host: same code and versions, devices, room on disks, lock files, the coordinator's port"
    yield from _starts(launch, hosts, Place(bundle, python))


def needed_for_tpu(name: str, zone: str, out: str) -> Iterator[str]:
    """The commands that make a TPU, and a bucket for its run directory, and that find its workers."""
    yield f"# the TPU, if it is not there yet:\n{shlex.join(tpu.creation(name, zone))}"
    yield f"# a bucket for {out}, if no network file system holds it, and where every worker has it:"
    yield buckets.creation("BUCKET", buckets.region_of(zone))
    yield shlex.join(tpu.on_all_words(name, zone, buckets.mounting("BUCKET")))
    yield f"# its workers:\n{shlex.join(tpu.describe_words(name, zone))}"


def _starts(launch: Launch, hosts: tuple[Host, ...], place: Place) -> Iterator[str]:
    processes = processes_of(hosts)
    address = coordinator(launch, hosts)
    variables = [f'{name}="${name}"' for name in launch.env] + [f"PYTHONPATH={shell_path(place.bundle + '/package')}"]
    if launch.devices:
        variables.append(f"XLA_FLAGS={SIMULATED}={launch.devices}")
    if launch.on.startswith("local"):
        variables.append("JAX_PLATFORMS=cpu")
    for process in processes:
        words = train_words(launch, place)
        if len(processes) > 1:
            words += ["--processes", str(len(processes)), "--process", str(process.number)]
            words += ["--coordinator", f"{address[0]}:{address[1]}", "--connect-timeout", f"{launch.connect_timeout:g}"]
        yield f"# {process.name}, detached, in {os.path.join(place.bundle, launch.directory)}:"
        yield f"{' '.join(variables)} {' '.join(map(shell_path, words))}"
