"""What a run needs of devices that it could have: memory, work, time; compiled ahead of time where a compiler is here.

Times are a roofline's (Williams et al. 2009): what the step takes at least, at the devices' published peaks.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax

from spanloom.model.flops import train_flops
from spanloom.model.params import declare, flatten, num_params
from spanloom.scale.changes import Change
from spanloom.scale.compiled import Compiled, NoCompilerError, TooLargeError, compile_and_look, tpu_devices
from spanloom.scale.mesh import Layout, check_batch, make_layout, mesh_sizes
from spanloom.scale.topologies import Topology
from spanloom.settings.run import Run
from spanloom.training.abstract import abstract_state, lower_step, whole_bytes
from spanloom.training.decided import highest_rate, settled
from spanloom.training.needs import Needs, abstract_layout, formula_needs, likely_changes
from spanloom.training.origin import origin_after
from spanloom.training.plan_data import PlanData

MOST_COMPILED = 4
"""Changes that are compiled in search of one that fits."""


@dataclass(frozen=True)
class Devices:
    """What a run is planned for."""

    name: str
    """As asked for: v4-32, cpu."""
    devices: int
    """Devices that JAX sees."""
    chips: int
    hosts: int
    cores: int
    """Cores, as prices count them."""
    memory: float | None
    """Bytes of one device that a program may use."""
    flops: float
    """Peak FLOP/s of one device."""
    bandwidth: float | None
    """Bytes/s of its memory."""
    interconnect: float | None
    """Bytes/s that it can send."""
    source: str
    """Where these figures come from."""


@dataclass(frozen=True)
class Plan:
    """A run on some devices."""

    run: Run
    on: Devices
    mesh: Mapping[str, int]
    """Devices along each axis."""
    data: PlanData
    decided: Mapping[str, str]
    """What settings decide, in the words of the table at a run's start, by label."""
    parameters: Mapping[str, int]
    """How many numbers, by part of the model."""
    bytes: Mapping[str, int]
    """Of all weights, of the optimizer's state and of the gradients, wherever they lie."""
    needs: Needs
    """Memory of one device."""
    formula_flops: float
    """FLOPs of a step, counted by formula: the numerator of MFU."""
    compiled: Compiled | None
    """What the compiler says; None: all is by formula, for the reason in `why`."""
    why: str = ""
    change: Change | None = None
    """The smallest change that fits, where the run itself does not."""
    change_needs: Needs | None = None
    tried: Sequence[str] = ()
    """Changes that were compiled and did not fit."""

    @property
    def bounds(self) -> dict[str, float]:
        """Least seconds of a step by what limits it: arithmetic, memory, network. By formula, memory is weights and the
        optimizer's state, read once and written once.
        """
        if self.compiled is None:
            found = {"arithmetic": self.formula_flops / self.on.devices / self.on.flops}
            if self.on.bandwidth:
                state = sum(self.needs.parts.get(name, 0.0) for name in ("weights", "optimizer"))
                found["memory"] = 2 * state / self.on.bandwidth
            return found
        found = {"arithmetic": self.compiled.cost.flops / self.on.flops}
        if self.on.bandwidth:
            found["memory"] = self.compiled.cost.bytes / self.on.bandwidth
        if self.on.interconnect and self.compiled.sent:
            found["network"] = self.compiled.sent / self.on.interconnect
        return found

    @property
    def step_seconds(self) -> float:
        """What a step takes at least."""
        return max(self.bounds.values())

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation at that speed, the most there can be."""
        return self.formula_flops / self.on.devices / self.on.flops / self.step_seconds

    @property
    def hours(self) -> float:
        """Of all steps, at least; evaluation, saving and reading not counted."""
        return self.run.steps * self.step_seconds / 3600

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON types."""
        tokens = tokens_of_step(self)
        return {
            "run": self.run.name,
            "model": self.run.model.name,
            "on": asdict(self.on),
            "mesh": dict(self.mesh),
            "decided": dict(self.decided),
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "bytes": dict(self.bytes),
            "lengths": dict(self.data.lengths),
            "batch_size": self.run.batch_size,
            "microbatches": self.run.microbatches,
            "tokens_per_step": tokens,
            "steps": self.run.steps,
            "tokens": sum(tokens.values()) * self.run.steps,
            "epochs": dict(self.data.epochs) or None,
            "flops_per_step": {
                "formula": self.formula_flops,
                "compiled": None if self.compiled is None else self.compiled.cost.flops * self.on.devices,
            },
            "per_device": {
                "memory": {"total": self.needs.total, "available": self.needs.available, **self.needs.parts},
                "flops": None if self.compiled is None else self.compiled.cost.flops,
                "bytes_accessed": None if self.compiled is None else self.compiled.cost.bytes,
                "bytes_sent": None if self.compiled is None else dict(self.compiled.exchanged),
            },
            "fits": self.needs.fits,
            "by_formula_because": self.why or None,
            "seconds_per_step_at_least": {**self.bounds, "step": self.step_seconds},
            "mfu_at_most": self.mfu,
            "hours_at_least": self.hours,
            "core_hours_at_least": self.hours * self.on.cores,
            "compile_seconds": None if self.compiled is None else round(self.compiled.seconds, 1),
            "smallest_change_that_fits": None if self.change is None else list(self.change.flags),
        }


def tokens_of_step(plan: Plan) -> dict[str, int]:
    """Positions of a batch on each side, padding included."""
    return {side: plan.run.batch_size * length for side, length in plan.data.lengths.items()}


def devices_of(topology: Topology, dtype: str) -> Devices:
    """A named topology's devices, for activations in `dtype`."""
    return Devices(
        topology.name,
        topology.devices,
        topology.chips,
        topology.hosts,
        topology.cores,
        topology.device_memory,
        topology.device_flops(dtype),
        topology.device_bandwidth,
        topology.device_interconnect,
        topology.chip.source,
    )


def devices_here(dtype: str) -> Devices:
    """The devices of this machine, whose speed is measured."""
    from spanloom.training.fits import available_memory
    from spanloom.training.machine import cpu_count, measured_peak

    devices = jax.devices()
    kind, count = devices[0].platform, len(devices)
    return Devices(
        "cpu" if kind == "cpu" else f"{count} x {devices[0].device_kind}",
        count,
        count,
        jax.process_count(),
        cpu_count() if kind == "cpu" else count,
        available_memory(devices[0]),
        measured_peak("bfloat16" if dtype == "bfloat16" else "float32") / jax.local_device_count(),
        None,
        None,
        "measured here",
    )


def make_plan(
    run: Run,
    data: PlanData,
    topology: Topology | None,
    *,
    search: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> Plan:
    """The plan of a resolved run for a topology, or for this machine's devices.

    `search`: where it does not fit, changes that would are looked for, and compiled. `say` is told what is compiled,
    which may take minutes. Raises MeshError where the mesh or the batch cannot be divided among the devices.
    """
    on = devices_here(run.model.dtype) if topology is None else devices_of(topology, run.model.dtype)
    planner = _Planner(data, topology, on, say)
    needs, compiled, why = planner.look(run)
    specs = flatten(declare(run.model))
    state = abstract_state(run, abstract_layout(run, on.devices))
    change, change_needs, tried = None, None, list[str]()
    if search and needs.fits is False:
        change, change_needs, tried = planner.search(run, needs)
    return Plan(
        run=run,
        on=on,
        mesh=mesh_sizes(run.mesh, on.devices),
        data=data,
        decided=settled(run, num_params(specs), data.vocabulary, _highest_rate(run)),
        parameters=_by_part(specs),
        bytes={
            "weights": whole_bytes(state.params),
            "optimizer": whole_bytes(state.opt_state),
            "gradients": 4 * num_params(specs),
        },
        needs=needs,
        formula_flops=train_flops(run.model, run.batch_size, data.lengths["encoder"], data.lengths["decoder"]),
        compiled=compiled,
        why=why,
        change=change,
        change_needs=change_needs,
        tried=tried,
    )


class _Planner:
    """Looks at a run and at changes of it, for the same devices."""

    def __init__(self, data: PlanData, topology: Topology | None, on: Devices, say: Callable[[str], None]):
        self._data, self._topology, self._on, self._say = data, topology, on, say

    def look(self, run: Run, changed: Sequence[str] = ()) -> tuple[Needs, Compiled | None, str]:
        """What a run needs; what the compiler says of it; where that says nothing, why."""
        layout = abstract_layout(run, self._on.devices)
        check_batch(layout, run.batch_size)
        check_batch(layout, run.at_a_time, "microbatch_size")
        formula = formula_needs(run, self._data.lengths, self._on.devices, self._on.memory)
        if self._topology is not None and not self._topology.layout:
            return formula, None, f"nothing here compiles for {self._on.name}"
        self._say(f"compiling for {self._on.name}" + (f", does it fit with {' '.join(changed)}?" if changed else ""))
        try:
            compiled = compile_and_look(lower_step(run, self._data.lengths, self._layout(run)))
        except NoCompilerError as error:
            return formula, None, str(error)
        except TooLargeError as error:
            needed = max(error.needed or 0.0, (self._on.memory or 0.0) * 1.001)
            available = error.available or self._on.memory
            return Needs(needed, available, formula.parts), None, f"its compiler gave up: {error}"
        if compiled.memory is None:
            return formula, compiled, "its compiler does not tell how much memory it takes"
        parts = {
            "weights, optimizer, batch": float(compiled.memory.stays),
            "temporaries": float(compiled.memory.temporaries),
            "code": float(compiled.memory.code),
        }
        return Needs(float(compiled.memory.total), self._on.memory, parts), compiled, ""

    def search(self, run: Run, needs: Needs) -> tuple[Change | None, Needs | None, list[str]]:
        """The smallest change that fits, and what it needs; and those that were looked at in vain."""
        tried: list[str] = []
        assert needs.available is not None
        for change in likely_changes(run, self._data.lengths, self._on.devices, needs.total, needs.available):
            found, _, _ = self.look(change.run, change.flags)
            if found.fits:
                return change, found, tried
            tried.append(" ".join(change.flags))
            if len(tried) == MOST_COMPILED:
                break
        return None, None, tried

    def _layout(self, run: Run) -> Layout:
        devices = None if self._topology is None else self._devices
        return make_layout(run.mesh, devices)

    @functools.cached_property
    def _devices(self) -> Sequence[Any]:
        assert self._topology is not None
        return tpu_devices(self._topology)


def _highest_rate(run: Run) -> float | None:
    """None where the schedule begins where a run that it follows will have come to."""
    return highest_rate(run, origin_after(run, None)) if run.follow.schedule == "restart" else None


def _by_part(specs: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of parameters: embedding, encoder, decoder, head."""
    names = {"token_embedder": "embedding", "decoder/logits_dense": "head", "encoder": "encoder", "decoder": "decoder"}
    found: dict[str, int] = {}
    for name, spec in specs.items():
        part = next(part for prefix, part in names.items() if name.startswith(prefix))
        found[part] = found.get(part, 0) + num_params(spec)
    return found
