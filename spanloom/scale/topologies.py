"""Devices that can be planned for, by the names under which they are rented: v4-32, v5e-16, h100x8.

Figures are those that the makers publish, for one chip, in bytes, FLOP/s and bytes/s. What TPUs leave of their memory
is what libtpu's compiler (0.0.42) says that it may use. Imports nothing heavy.
"""

import math
import re
from dataclasses import dataclass

from spanloom.settings.nearest import did_you_mean

_GIB = 2**30
_GB = 1e9
_TERA = 1e12


@dataclass(frozen=True)
class Chip:
    """A kind of chip."""

    name: str
    """As in names of topologies: v4, v5e, h100."""
    memory: float
    """Bytes that a program may use, of one chip."""
    flops: float
    """Peak FLOP/s of one chip in bfloat16, dense."""
    flops_float32: float
    """Likewise of float32 products at JAX's default precision (TPU: bfloat16's passes; GPU: TF32)."""
    bandwidth: float
    """Bytes/s of its memory."""
    interconnect: float
    """Bytes/s that it can send to its neighbours, over all its links together."""
    source: str
    """Where these figures are published."""
    cores: int = 1
    """Cores of a chip, as prices and names count them."""
    devices: int = 1
    """Devices that JAX sees of a chip."""
    counted: str = "chips"
    """What the number in its names counts."""
    libtpu: str = ""
    """Its name for libtpu's compiler; empty for what nothing compiles for here."""
    torus: int = 0
    """Dimensions of the network: 2 or 3 of TPUs; 0: all chips of a host are joined to each other."""
    per_host: int = 8
    """Chips of a host at most."""


_CLOUD = "Cloud TPU documentation, system architecture"
_CACM = "Jouppi et al. 2020, A domain-specific supercomputer for training deep neural networks, CACM 63(7)"
CHIPS = {
    chip.name: chip
    for chip in (
        Chip(
            "v2",
            memory=2 * 7.48 * _GIB,  # of 16
            flops=45 * _TERA,
            flops_float32=45 * _TERA,
            bandwidth=700 * _GB,
            interconnect=4 * 496e9 / 8,
            source=f"{_CLOUD}; {_CACM}",
            cores=2,
            devices=2,
            counted="cores",
            libtpu="v2",
            torus=2,
            per_host=4,
        ),
        Chip(
            "v3",
            memory=2 * 15.48 * _GIB,  # of 32
            flops=123 * _TERA,
            flops_float32=123 * _TERA,
            bandwidth=900 * _GB,
            interconnect=4 * 656e9 / 8,
            source=f"{_CLOUD}; {_CACM}",
            cores=2,
            devices=2,
            counted="cores",
            libtpu="v3",
            torus=2,
            per_host=4,
        ),
        Chip(
            "v4",
            memory=30.75 * _GIB,  # of 32
            flops=275 * _TERA,
            flops_float32=275 * _TERA,
            bandwidth=1200 * _GB,
            interconnect=6 * 50 * _GB,
            source=f"{_CLOUD}; Jouppi et al. 2023, TPU v4, ISCA",
            cores=2,
            counted="cores",
            libtpu="v4",
            torus=3,
            per_host=4,
        ),
        Chip(
            "v5e",
            memory=15.75 * _GIB,  # of 16
            flops=197 * _TERA,
            flops_float32=197 * _TERA,
            bandwidth=819 * _GB,
            interconnect=400 * _GB / 2,  # published for both directions together
            source=_CLOUD,
            libtpu="v5e",
            torus=2,
        ),
        Chip(
            "v5p",
            memory=95.74 * _GIB,
            flops=459 * _TERA,
            flops_float32=459 * _TERA,
            bandwidth=2765 * _GB,
            interconnect=1200 * _GB / 2,
            source=_CLOUD,
            cores=2,
            counted="cores",
            libtpu="v5p",
            torus=3,
            per_host=4,
        ),
        Chip(
            "v6e",
            memory=31.25 * _GIB,  # of 32
            flops=918 * _TERA,
            flops_float32=918 * _TERA,
            bandwidth=1638 * _GB,
            interconnect=800 * _GB / 2,
            source=_CLOUD,
            libtpu="v6e",
            torus=2,
        ),
        Chip(
            "a100",
            memory=80 * _GB,
            flops=312 * _TERA,
            flops_float32=156 * _TERA,
            bandwidth=2039 * _GB,
            interconnect=600 * _GB / 2,
            source="NVIDIA A100 data sheet, 80 GB SXM",
        ),
        Chip(
            "h100",
            memory=80 * _GB,
            flops=989 * _TERA,
            flops_float32=495 * _TERA,
            bandwidth=3350 * _GB,
            interconnect=900 * _GB / 2,
            source="NVIDIA H100 data sheet, SXM, without sparsity",
        ),
        Chip(
            "h200",
            memory=141 * _GB,
            flops=989 * _TERA,
            flops_float32=495 * _TERA,
            bandwidth=4800 * _GB,
            interconnect=900 * _GB / 2,
            source="NVIDIA H200 data sheet, SXM, without sparsity",
        ),
    )
}

_GRIDS = {
    2: ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 32), (32, 32)),
    3: (
        *((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8), (8, 8, 12)),
        *((8, 8, 16), (8, 16, 16), (12, 16, 16), (16, 16, 16), (16, 16, 24)),
    ),
}
"""Chips of a slice along each axis of the network, by its dimensions."""
_LARGEST = {"v2": 256, "v3": 1024, "v4": 4096, "v5e": 256, "v5p": 6144, "v6e": 256}
"""Chips of the largest slice that there is."""
_HOSTS_OF_GPUS = 128


@dataclass(frozen=True)
class Topology:
    """Chips that work together."""

    name: str
    """As asked for: v4-32."""
    chip: Chip
    """What they are."""
    grid: tuple[int, ...]
    """Chips along each axis of the network; of GPUs, all."""

    @property
    def chips(self) -> int:
        """How many."""
        return math.prod(self.grid)

    @property
    def devices(self) -> int:
        """Devices that JAX sees."""
        return self.chips * self.chip.devices

    @property
    def cores(self) -> int:
        """Cores, as prices count them: of GPUs, whole ones."""
        return self.chips * self.chip.cores

    @property
    def hosts(self) -> int:
        """Machines. Of v5e and v6e, one has all of 8 chips or fewer, and 4 of larger slices."""
        per_host = self.chip.per_host
        if self.chip.torus and self.chips > per_host:
            per_host = 4
        return -(-self.chips // per_host)

    @property
    def layout(self) -> str:
        """What libtpu's compiler calls it: v4:2x2x4."""
        return f"{self.chip.libtpu}:{'x'.join(map(str, self.grid))}" if self.chip.libtpu else ""

    @property
    def chips_per_host(self) -> tuple[int, int, int]:
        """The chips of a host along each axis, as libtpu's compiler wants them."""
        x, y, z = (*self.grid, 1, 1)[:3]
        whole = self.hosts == 1
        return (x, y, z) if whole else (2, 2, 1)

    @property
    def device_memory(self) -> float:
        """Bytes that a program may use of one device."""
        return self.chip.memory / self.chip.devices

    def device_flops(self, dtype: str) -> float:
        """Peak FLOP/s of one device for products in a type of activations."""
        return (self.chip.flops if dtype == "bfloat16" else self.chip.flops_float32) / self.chip.devices

    @property
    def device_bandwidth(self) -> float:
        """Bytes/s of one device's memory."""
        return self.chip.bandwidth / self.chip.devices

    @property
    def device_interconnect(self) -> float:
        """Bytes/s that one device can send."""
        return self.chip.interconnect / self.chip.devices


class UnknownTopologyError(ValueError):
    """No devices have that name. The message has the nearest, and the list."""


def topology(name: str) -> Topology:
    """The devices of a name such as v3-8, v4-32, v5e-16 or h100x8. Raises UnknownTopologyError."""
    asked = name.strip().lower().replace("v5litepod", "v5e").replace("_", "-")
    match = re.fullmatch(r"(\w+?)(-|x)(\d+)", asked)
    chip = CHIPS.get(match[1]) if match else None
    if match and chip and not chip.torus and match[2] == "x" and _is_gpus(int(match[3])):
        return Topology(asked, chip, (int(match[3]),))
    known = names()
    if asked in known:
        return _slice(asked)
    kind = match[1] if match else asked
    near = did_you_mean(asked, known)
    if chip is not None and match:
        wanted = int(match[3])
        near = f"; the nearest is {min(names_of(chip), key=lambda one: abs(_number(one) - wanted))}"
    there = names_of(chip) if chip else known
    raise UnknownTopologyError(f"no devices are called {name!r}{near}; there are {_in_short(there, kind)}")


def names() -> list[str]:
    """Every name, in the order of the chips."""
    return [name for chip in CHIPS.values() for name in names_of(chip)]


def names_of(chip: Chip) -> list[str]:
    """Every name of one kind of chip."""
    if not chip.torus:
        return [f"{chip.name}x{n}" for n in (1, 2, 4, 8, *(8 * hosts for hosts in (2, 4, 8, 16, 32, 64, 128)))]
    per_chip = chip.cores if chip.counted == "cores" else 1
    fitting = [grid for grid in _GRIDS[chip.torus] if math.prod(grid) <= _LARGEST[chip.name]]
    whole = [grid for grid in fitting if chip.counted == "chips" or math.prod(grid) % 4 == 0]
    whole = [grid for grid in whole if not (chip.counted == "cores" and grid == (2, 4))]
    return [f"{chip.name}-{math.prod(grid) * per_chip}" for grid in whole]


def _slice(name: str) -> Topology:
    kind, _, number = name.partition("-")
    chip = CHIPS[kind]
    chips = int(number) // (chip.cores if chip.counted == "cores" else 1)
    return Topology(name, chip, next(grid for grid in _GRIDS[chip.torus] if math.prod(grid) == chips))


def _is_gpus(number: int) -> bool:
    """GPUs of a part of a host, or of whole hosts of 8."""
    return 1 <= number <= 8 or (number % 8 == 0 and 0 < number <= 8 * _HOSTS_OF_GPUS)


def _number(name: str) -> int:
    return int(re.split("[-x]", name)[-1])


def _in_short(found: list[str], kind: str) -> str:
    """A list of names that a line can hold: of one kind all, of all kinds the ends."""
    if len({re.split("[-x]", name)[0] for name in found}) == 1:
        return ", ".join(found)
    spans = [names_of(chip) for chip in CHIPS.values()]
    return ", ".join(f"{span[0]} to {span[-1]}" for span in spans) + ", and cpu (this machine)"
