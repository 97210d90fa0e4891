"""Compiling ahead of time for devices that need not be there, and reading off what the program needs of each."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from spanloom.scale.hlo import Cost, Program, xla_cost
from spanloom.scale.libtpu import prepare_libtpu
from spanloom.scale.topologies import Topology

_OPTIONS = {"v4": {"chip_config_name": "megacore"}}  # both cores of a chip as one device, as JAX has them on a v4


class NoCompilerError(RuntimeError):
    """Nothing here compiles for those devices. The message says why, and what would help if anything does."""


class TooLargeError(RuntimeError):
    """The compiler found no way to make the program fit into a device's memory."""

    def __init__(self, message: str, needed: float | None, available: float | None):
        super().__init__(message)
        self.needed, self.available = needed, available
        """Bytes, where the compiler says so."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one device's memory that a program takes, as its compiler planned them."""

    arguments: int
    """What it is given: weights, optimizer state, batch."""
    outputs: int
    """What it gives back."""
    aliased: int
    """Of the outputs, what takes the place of arguments."""
    temporaries: int
    """Activations, gradients, and whatever else comes and goes."""
    code: int
    """The program itself."""

    @property
    def stays(self) -> int:
        """What is there between the steps, and what is given back beside it."""
        return self.arguments + self.outputs - self.aliased

    @property
    def total(self) -> int:
        """All of it."""
        return self.stays + self.temporaries + self.code


@dataclass(frozen=True)
class Compiled:
    """What a compiled program needs of one device."""

    memory: Memory | None
    """None where the compiler does not tell."""
    cost: Cost
    """FLOPs and bytes of one run, loops as often as they run."""
    exchanged: Mapping[str, float] = field(default_factory=dict)
    """Bytes sent to other devices, by kind of exchange."""
    unknown_loops: int = 0
    """Loops of which the program does not say how often they run; they count once."""
    seconds: float = 0.0
    """How long compiling took."""

    @property
    def sent(self) -> float:
        """Bytes sent to other devices."""
        return sum(self.exchanged.values())


def tpu_devices(topology: Topology) -> Sequence[Any]:
    """Devices of a TPU topology, to compile for and not to run on. Raises NoCompilerError where libtpu is missing."""
    from jax.experimental import topologies

    prepare_libtpu()
    options: dict[str, Any] = {"chips_per_host_bounds": topology.chips_per_host, **_OPTIONS.get(topology.chip.name, {})}
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology.layout, **options)
    except (RuntimeError, NotImplementedError, ImportError) as error:
        raise NoCompilerError(
            f"nothing here compiles for {topology.name} ({str(error).splitlines()[0]}): its compiler comes with "
            "pip install 'spanloom[tpu]', which needs no TPU"
        ) from error
    return found.devices


def compile_and_look(lowered: jax.stages.Lowered) -> Compiled:
    """Compiles a lowered program, and reads off what it needs. Raises TooLargeError where it cannot fit."""
    started = time.monotonic()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise TooLargeError(str(error).splitlines()[0], *_sizes_in(str(error))) from error
        raise
    return look(compiled, time.monotonic() - started)


def look(compiled: jax.stages.Compiled, seconds: float = 0.0) -> Compiled:
    """What a compiled program needs of a device."""
    text = compiled.as_text() or ""
    program = Program(text)
    exchanged: dict[str, float] = {}
    for one in program.collectives():
        exchanged[one.kind] = exchanged.get(one.kind, 0.0) + one.sent
    unknown = sum(loop.trips is None for loop in program.loops())
    return Compiled(memory_of(compiled), _in_its_own_bytes(compiled, text, program.cost()), exchanged, unknown, seconds)


def memory_of(compiled: jax.stages.Compiled) -> Memory | None:
    """A compiled program's memory; None where its compiler does not tell."""
    found: Any = compiled.memory_analysis()
    if found is None:
        return None
    return Memory(
        arguments=found.argument_size_in_bytes,
        outputs=found.output_size_in_bytes,
        aliased=found.alias_size_in_bytes,
        temporaries=found.temp_size_in_bytes,
        code=getattr(found, "generated_code_size_in_bytes", 0),
    )


def _in_its_own_bytes(compiled: jax.stages.Compiled, text: str, cost: Cost) -> Cost:
    """The cost with bytes as the devices' own compiler counts them: a TPU pads arrays to tiles, which takes more."""
    own: Any = compiled.cost_analysis() or {}
    once = xla_cost(text)
    if not own.get("bytes accessed") or not once.bytes:
        return cost
    return Cost(cost.flops, cost.bytes * own["bytes accessed"] / once.bytes)


def _sizes_in(message: str) -> tuple[float | None, float | None]:
    """Bytes needed and available, of the ways in which TPU's compiler says so."""
    for pattern in (r"Used ([\d.]+)([KMGT]) of ([\d.]+)([KMGT]) hbm", r"\(([\d.]+)([KMGT])\).*\(([\d.]+)([KMGT])\)"):
        if found := re.search(pattern, message):
            return _bytes(found[1], found[2]), _bytes(found[3], found[4])
    return None, None


def _bytes(number: str, unit: str) -> float:
    return float(number) * 1024.0 ** ("KMGT".index(unit) + 1)
