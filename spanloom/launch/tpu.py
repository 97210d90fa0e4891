"""The workers of a Cloud TPU, by gcloud: who they are now, how each is reached, and how such a TPU is made."""

import json
import shlex
import subprocess
from typing import Any

from spanloom.launch import buckets
from spanloom.launch.hosts import GoneError, Host, HostsError

SECONDS = 120.0
KEEP_ALIVE = ("--ssh-flag=-oServerAliveInterval=15", "--ssh-flag=-oServerAliveCountMax=3")
RUNTIMES = {"v5lite": "v2-alpha-tpuv5-lite", "v5p": "v2-alpha-tpuv5", "v6e": "v2-alpha-tpuv6e"}
"""Images of the TPU's machines by the beginnings of accelerator types; older ones share one."""
INSTALL = "install the Google Cloud CLI (gcloud), then `gcloud auth login` and `gcloud config set project PROJECT`"


def describe_words(name: str, zone: str) -> list[str]:
    """The command that says what a TPU is."""
    return ["gcloud", "compute", "tpus", "tpu-vm", "describe", name, *_in(zone), "--format=json"]


def creation(name: str, zone: str, kind: str = "v4-32") -> list[str]:
    """The command that makes such a TPU, for its owner to run."""
    zone = zone or "ZONE"
    version = next((image for start, image in RUNTIMES.items() if kind.startswith(start)), "tpu-ubuntu2204-base")
    runtime = ["--accelerator-type", kind, "--version", version]
    return ["gcloud", "compute", "tpus", "tpu-vm", "create", name, *_in(zone), *runtime]


def ssh_words(name: str, zone: str, worker: int) -> tuple[str, ...]:
    """The words before the line that a worker is to run; gcloud brings the key, and knows the worker's address."""
    ssh = ["gcloud", "compute", "tpus", "tpu-vm", "ssh", name, *_in(zone), f"--worker={worker}"]
    return (*ssh, "--quiet", "--strict-host-key-checking=no", *KEEP_ALIVE, "--command")


def on_all_words(name: str, zone: str, line: str) -> list[str]:
    """The command that runs a shell line on every worker, for its owner."""
    return ["gcloud", "compute", "tpus", "tpu-vm", "ssh", name, *_in(zone), "--worker=all", "--command", line]


def found_or_imagined(name: str, zone: str) -> tuple[tuple[Host, ...], str]:
    """The workers; where they cannot be asked for, two as they might be, and why."""
    try:
        return tpu_hosts(name, zone), ""
    except HostsError as error:
        return tuple(Host(f"{name} worker {i}", f"ADDRESS{i}", ssh_words(name, zone, i)) for i in range(2)), str(error)


def _in(zone: str) -> list[str]:
    return ["--zone", zone] if zone else []


def tpu_hosts(name: str, zone: str) -> tuple[Host, ...]:
    """A host for each worker, in the order of their numbers, by their addresses as they are now.

    Raises HostsError, with the command that makes the TPU, where it is not there or not ready.
    """
    found = _described(name, zone)
    state, kind = str(found.get("state")), str(found.get("acceleratorType") or "v4-32").rpartition("/")[2]
    if state != "READY":
        raise GoneError(
            f"TPU {name} is {state}, not READY: wait for it (--keep-going does), or make it anew: gcloud compute tpus "
            f"tpu-vm delete {name} {' '.join(_in(zone))}; {shlex.join(creation(name, zone, kind))}"
        )
    endpoints = found.get("networkEndpoints") or []
    addresses = [str(one.get("ipAddress") or "") for one in endpoints if isinstance(one, dict)]
    if not addresses or not all(addresses):
        raise HostsError(
            f"gcloud names no addresses of TPU {name}: look at it with {shlex.join(describe_words(name, zone))}"
        )
    return tuple(Host(f"{name} worker {i}", address, ssh_words(name, zone, i)) for i, address in enumerate(addresses))


def _described(name: str, zone: str) -> dict[str, Any]:
    words = describe_words(name, zone)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise HostsError(
            f"tpu:{name} needs gcloud, which is not here: {INSTALL}. A TPU is made by {_made(name, zone)}"
        ) from None
    except subprocess.TimeoutExpired:
        raise HostsError(f"no answer from `{shlex.join(words)}` in {SECONDS:.0f} s: try it by hand") from None
    if done.returncode:
        said = done.stderr.strip()[-1000:]
        kind = GoneError if "NOT_FOUND" in said else HostsError
        raise kind(
            f"`{shlex.join(words)}` failed: {said}\nIf there is no such TPU (is its zone right, tpu:{name}@ZONE?), it "
            f"is made by {_made(name, zone)}, and a bucket for --out, mounted on its workers by gcsfuse, by "
            f"`{buckets.creation('BUCKET', buckets.region_of(zone))}`; --dry-run prints every command"
        )
    try:
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
    except (ValueError, AssertionError):
        raise HostsError(f"`{shlex.join(words)}` says no JSON object: {done.stdout[:200]!r}; update gcloud") from None
    return found


def _made(name: str, zone: str) -> str:
    return f"`{shlex.join(creation(name, zone))}`"
