"""A plan as rows of a table, for a terminal or a pipe, and the sharding of every parameter."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from spanloom.model.params import flatten
from spanloom.report.terminal import Page, table_text
from spanloom.training.abstract import abstract_state, device_bytes
from spanloom.training.needs import Needs, abstract_layout
from spanloom.training.plan import Plan, tokens_of_step
from spanloom.training.progress import amount, duration

_GIB = 2**30


def plan_text(plan: Plan, *, width: int | None, colour: bool) -> str:
    """The plan as a table of two columns. `width` in columns; None: lines are not broken."""
    page = Page(width, colour)
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text, style in rows(plan):
        grid.add_row(label, Text(text, style=style))
    return page.lines(Text(title(plan), style="bold"), grid)


def title(plan: Plan) -> str:
    """The run and the devices in one line."""
    on = plan.on
    divided = " x ".join(f"{axis} {size}" for axis, size in plan.mesh.items() if size > 1) or "not divided"
    chips = f"{on.chips:,} chip{'s' * (on.chips != 1)}" if on.name != "cpu" else f"{on.devices} device"
    seen = f", {on.devices:,} devices" if on.devices != on.chips else ""
    hosts = f" of {on.hosts:,} hosts" if on.hosts > 1 else ""
    return f"run {plan.run.name} on {on.name}: {chips}{hosts}{seen}, {on.cores:,} cores; mesh: {divided}"


def rows(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Label, text and style of each line."""
    yield "model", plan.decided["model"], ""
    yield "parameters", ", ".join(f"{name} {amount(number)}" for name, number in plan.parameters.items()), ""
    yield from ((label, plan.decided[label], "") for label in ("ids", "precision", "optimizer", "schedule"))
    yield "in all", ", ".join(f"{name} {amount(size)}B" for name, size in plan.bytes.items()), ""
    yield "batch", _batch(plan), ""
    yield "run", _amounts(plan), ""
    yield "every", plan.decided["every"], ""
    yield "FLOPs", _flops(plan), ""
    yield "memory", needs_line(plan.needs), _style(plan.needs)
    if plan.needs.fits is False:
        yield "what fits", _change(plan), ""
    yield "a step", _step(plan), ""
    speed = f"{plan.on.flops / 1e12:,.1f} TFLOP/s" if plan.on.flops >= 1e11 else f"{amount(plan.on.flops)}FLOP/s"
    yield "MFU", f"{plan.mfu:.0%} at best ({speed} a device, {plan.on.source})", ""
    yield "the run", _time(plan), ""
    yield "known by", _source(plan), "dim"


def needs_line(needs: Needs) -> str:
    """Memory of one device: how much of how much, what for, and whether it fits."""
    unit, one = ("GiB", _GIB) if needs.total >= _GIB / 2 else ("MiB", 2**20)
    listed = sorted(needs.parts.items(), key=lambda item: -item[1])
    parts = ", ".join(f"{name} {size / one:,.2f}" for name, size in listed if size)
    if needs.available is None:
        return f"{needs.total / one:,.2f} {unit} a device ({parts}); nobody knows how much it has"
    verdict = "fits" if needs.fits else "DOES NOT FIT"
    return f"{needs.total / one:,.2f} of {needs.available / one:,.2f} {unit} a device: {verdict} ({parts})"


def shardings_text(plan: Plan) -> str:
    """A table of every parameter: its shape, how it is divided, and what a device keeps of it."""
    params: Mapping[str, Any] = flatten(abstract_state(plan.run, abstract_layout(plan.run, plan.on.devices)).params)
    rows: list[tuple[str, ...]] = [
        (
            name,
            "x".join(map(str, leaf.shape)),
            _divided(leaf.sharding.spec, plan.mesh),
            f"{amount(device_bytes(leaf))}B",
        )
        for name, leaf in params.items()
    ]
    return table_text((("parameter", "shape", "divided along", "a device keeps"), rows))


def sum_line(plans: Sequence[Plan]) -> str:
    """What all stages take together on the same devices."""
    hours = sum(plan.hours for plan in plans)
    cores = sum(plan.hours * plan.on.cores for plan in plans)
    steps = sum(plan.run.steps for plan in plans)
    took = f"{duration(hours * 3600)} at best, {_hours(cores)} core-hours"
    return f"all {len(plans)} stages on {plans[0].on.name}: {steps:,} steps, {took}\n"


def _divided(spec: Any, mesh: Mapping[str, int]) -> str:
    """A PartitionSpec in words: '-, fsdp, tensor', a dash for what is not divided; nothing: each device has it all."""
    axes = [axis if isinstance(axis, tuple) else (axis,) for axis in spec]
    named = ["+".join(name for name in axis if name and mesh[name] > 1) or "-" for axis in axes]
    return ", ".join(named) if any(name != "-" for name in named) else "nothing"


def _batch(plan: Plan) -> str:
    lengths, tokens = plan.data.lengths, tokens_of_step(plan)
    parts = f" in {plan.run.microbatches} microbatches" if plan.run.microbatches > 1 else ""
    return (
        f"{plan.run.batch_size:,} rows of {lengths['encoder']:,} + {lengths['decoder']:,} tokens{parts}: a step takes "
        f"{tokens['encoder']:,} encoder and {tokens['decoder']:,} decoder tokens"
    )


def _amounts(plan: Plan) -> str:
    tokens = sum(tokens_of_step(plan).values()) * plan.run.steps
    line = f"{plan.run.steps:,} steps, {amount(tokens)} tokens"
    if plan.data.epochs:
        several = len(plan.data.epochs) > 1
        epochs = ", ".join(f"{f'{name} ' * several}{number:,.2f}" for name, number in plan.data.epochs.items())
        return f"{line}, epochs: {epochs}"
    return f"{line}; epochs are unknown: {plan.data.unknown}"


def _flops(plan: Plan) -> str:
    line = f"{amount(plan.formula_flops)} a step by formula"
    if plan.compiled is None:
        return line
    flops, accessed = plan.compiled.cost.flops, plan.compiled.cost.bytes
    sent = ", ".join(f"{kind} {amount(size)}B" for kind, size in plan.compiled.exchanged.items())
    loops = f"; {plan.compiled.unknown_loops} loops of unknown length count once" if plan.compiled.unknown_loops else ""
    return (
        f"{line}, {amount(flops * plan.on.devices)} as compiled; a device: {amount(flops)}, {amount(accessed)}B of "
        f"memory read and written, sent {sent or 'nothing'}{loops}"
    )


def _step(plan: Plan) -> str:
    bounds = ", ".join(f"{name} {_seconds(seconds)}" for name, seconds in plan.bounds.items())
    tokens = sum(tokens_of_step(plan).values()) / plan.step_seconds
    return f"{_seconds(plan.step_seconds)} at best ({bounds}), {amount(tokens)} tokens/s"


def _time(plan: Plan) -> str:
    hours = f"{_hours(plan.hours * plan.on.cores)} core-hours"
    if plan.on.cores != plan.on.chips:
        hours += f", {_hours(plan.hours * plan.on.chips)} chip-hours"
    return f"{duration(plan.hours * 3600)} at best: {hours} (a step at half of that speed is a good one)"


def _change(plan: Plan) -> str:
    if plan.change is not None and plan.change_needs is not None:
        return f"{' '.join(plan.change.flags)}  ({needs_line(plan.change_needs)})"
    tried = f" (compiled in vain: {'; '.join(plan.tried)})" if plan.tried else ""
    return f"nothing that was found on {plan.on.name}{tried}: more devices, a smaller --batch-size or a smaller --model"


def _source(plan: Plan) -> str:
    if plan.compiled is None:
        return f"formula, right within a third or so: {plan.why}"
    return f"compiled for {plan.on.name} in {plan.compiled.seconds:.0f} s, by this machine"


def _style(needs: Needs) -> str:
    return "" if needs.fits is None else "green" if needs.fits else "bold red"


def _seconds(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.3g} ms"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 10 else f"{hours:.2g}"
