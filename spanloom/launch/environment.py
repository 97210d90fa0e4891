"""What the Python of the hosts has installed: the versions that are here, known by the hash of their list."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata

_EXTRA = re.compile(r"""\s*(?:and\s+)?extra\s*==\s*['"]([\w-]+)['"]""")


class LockError(ValueError):
    """No environment can be described; the message names cause and fix."""


@dataclass(frozen=True)
class Environment:
    """A lock: what is installed, and the versions that anything installed may have."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]

    @property
    def name(self) -> str:
        """16 hexadecimal digits: equal locks have equal names."""
        text = "\n".join(["requirements", *self.requirements, "constraints", *self.constraints])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def lock(extras: Sequence[str], packages: Sequence[str]) -> Environment:
    """What Spanloom with these extras needs, and further `packages` (as pip takes them), in the versions that are here.

    Raises LockError for an unknown extra, or where Spanloom is not installed here.
    """
    try:
        needs = metadata.requires("spanloom") or []
        known = metadata.metadata("spanloom").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        raise LockError(
            "Spanloom is not installed here, so what the hosts need is unknown: pip install -e . in its folder, or "
            "--python PATH --build no for a Python of theirs that has all"
        ) from None
    if wrong := [extra for extra in extras if extra not in known]:
        raise LockError(f"--extras {' '.join(wrong)}: no such extra; there are {', '.join(sorted(known))}")
    requirements = [*_needed(needs, set(extras)), *packages]
    return Environment(tuple(dict.fromkeys(requirements)), tuple(sorted(set(_versions()))))


def _needed(needs: Iterable[str], extras: set[str]) -> Iterable[str]:
    """Requirements without the marker of their extra, where that one is wanted; pip reads the other markers itself."""
    for need in needs:
        text, _, marker = need.partition(";")
        if found := _EXTRA.search(marker):
            if found[1] not in extras:
                continue
            marker = _EXTRA.sub("", marker)
        yield f"{text.strip()}; {marker.strip()}" if marker.strip() else text.strip()


def _versions() -> Iterable[str]:
    """`name==version` of all that is installed here, but for what no index has: own builds and local versions."""
    for found in metadata.distributions():
        name, version = found.metadata["Name"], found.version
        if name and version and name.lower() != "spanloom" and "+" not in version:
            yield f"{name.lower()}=={version}"
