"""What is looked at before anything starts: whether hosts have the same code, versions and devices, and can talk."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spanloom.launch.calls import Call, HostError, ask, each
from spanloom.launch.hosts import Host
from spanloom.launch.processes import Place

LEAST_FREE = 2**30
"""Bytes that a disk must have free."""
SECONDS = 120.0


def problems(reports: Mapping[str, dict[str, Any]]) -> list[str]:
    """What keeps the hosts from training together, a line each, with the fix; by host, what `on_host.check` says."""
    found = []
    for name, report in reports.items():
        found += [f"{name}: {problem}" for problem in _of_one(report)]
    versions = {name: report["versions"] for name, report in reports.items() if report["versions"]}
    for package in sorted({package for found_there in versions.values() for package in found_there}):
        what = "the same Python everywhere (--python)" if package == "python" else "--build yes builds them all alike"
        found += _unequal({n: v.get(package, "none") for n, v in versions.items()}, f"versions of {package}", what)
    for kind in ("tpu", "gpu"):
        counts = {name: str(report["devices"].get(kind, 0)) for name, report in reports.items()}
        found += _unequal(counts, f"numbers of {kind.upper()}s", "leave hosts out, or mend those that have lost some")
    return found


def _of_one(report: dict[str, Any]) -> list[str]:
    found = []
    if report["changed"]:
        names = ", ".join(report["changed"][:3])
        found.append(f"{len(report['changed'])} files are not as they were sent ({names}): give the same command again")
    if not report["versions"]:
        found.append(f"Spanloom cannot be imported there: {report.get('broken')}")
    elif "jax" not in report["versions"]:
        found.append("JAX is not installed there: leave out --build no, or install it")
    accelerators = [f"{count} {kind.upper()}s" for kind, count in report["devices"].items() if count]
    if accelerators and report["slots"] > 1:
        found.append(
            f"{report['slots']} processes would each claim its {' and '.join(accelerators)}: write one process"
        )
    found += report["locks"]
    for key, where in (("free", "the home directory"), ("out_free", "the run directory")):
        if report.get(key, LEAST_FREE) < LEAST_FREE:
            found.append(f"only {report[key] / 2**20:.0f} MiB are free on the disk of {where}: free some room")
    if not report.get("out_writable", True):
        found.append("nothing can be written in the run directory: choose another --out, or mend its rights")
    if "in_use" in report:
        found.append(f"another training process uses the run directory (id {report['in_use']}): stop it first")
    return found


def _unequal(values: Mapping[str, str], what: str, fix: str) -> list[str]:
    if len(set(values.values())) < 2:
        return []
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    told = "; ".join(
        f"{value} on {', '.join(names[:4])}{' ...' if names[4:] else ''}" for value, names in groups.items()
    )
    return [f"the hosts have different {what}: {told} ({fix})"]


def summary(reports: Sequence[dict[str, Any]]) -> str:
    """What all hosts have, in a line."""
    versions, devices = reports[0]["versions"], reports[0]["devices"]
    names = ", ".join(f"{name} {versions[name]}" for name in ("python", "jax", "libtpu") if name in versions)
    kinds = ", ".join(f"{count} {kind.upper()}{'s' if count > 1 else ''}" for kind, count in devices.items() if count)
    return f"{names}; {kinds or 'no accelerator'} on each"


def look(hosts: Sequence[Host], python: str, request: dict[str, Any], places: Sequence[Place]) -> str:
    """Ask all hosts, and judge what they say: `summary`. Raises HostError with every problem."""

    def check(number: int) -> dict[str, Any]:
        place = places[number]
        asked = {**request, "do": "check", "bundle": place.bundle, "python": place.python, "first": number == 0}
        return {**ask(hosts[number], python, asked, seconds=SECONDS), "slots": hosts[number].slots}

    reports = each(range(len(hosts)), check)
    if hosts[0].command:
        reports_of = {host.name: report for host, report in zip(hosts, reports, strict=True)}
    else:
        reports_of = {hosts[0].name: {**reports[0], "slots": 1}}  # on CPU, where many may be
    if found := problems(reports_of):
        raise HostError("\n".join(found))
    return summary(reports)


def coordinator_answers(
    hosts: Sequence[Host], python: str, address: str, port: int, heard: Callable[[str], object] = lambda text: None
) -> None:
    """The first host listens where the coordinator will, and all others find it. Raises HostError."""
    token, ports = secrets.token_hex(8), [port, port + 1]
    call = Call(hosts[0], python, {"do": "listen", "ports": ports, "token": token, "seconds": SECONDS}, keep_open=True)
    try:
        said = next(iter(call), None)
        if said is None or "error" in said:
            raise HostError(f"{hosts[0].name}: {said['error']}" if said else call.why_broken(SECONDS))
        asked = {"do": "reach", "host": address, "ports": ports, "token": token, "seconds": 20.0}
        each(hosts[1:], lambda host: ask(host, python, asked, seconds=SECONDS))
    finally:
        call.close()
