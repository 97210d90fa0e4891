"""`spanloom plan RECIPE`: what a run would take, on devices that need not be here."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from spanloom.cli.errors import CommandError, UsageError
from spanloom.cli.flags import Command, parse
from spanloom.cli.recipe import find
from spanloom.cli.terminal import width_and_colour
from spanloom.cli.tokens import first_word
from spanloom.settings.run import Run

if TYPE_CHECKING:
    from spanloom.scale.topologies import Topology
    from spanloom.training.plan import Plan

USAGE = """usage: spanloom plan RECIPE [--on v4-32 ...] [--shardings] [--json] [flags]

What a run takes before anything is booked: parameters, memory of a device and whether it fits, FLOPs, the least time
of a step, hours and core-hours. For TPUs the real training step is compiled ahead of time, by the TPU's own compiler,
which needs no TPU (pip install 'spanloom[tpu]'); for GPUs the figures are by formula. Where a run does not fit, the
smallest change that does is looked for, compiled, and printed as flags.

RECIPE and flags are those of `spanloom train`. Text and vocabulary need not be there: a plan reads no data, and says
epochs only where stores are built. Stages have a plan each, and a sum.
--on names devices as they are rented: v3-8, v4-32, v5e-16, v5p-128, v6e-8, a100x8, h100x8; without it, this machine.

  spanloom plan quickstart                                     on this machine
  spanloom plan t5_1_1_base --on v5e-4 v4-8 h100x8             side by side
  spanloom plan t5_1_1_base --on v4-32 --batch-size 2048       a larger batch
  spanloom plan pretrain --model byt5_xl --on v3-8 --shardings every parameter, and how it is divided
  spanloom plan RECIPE --help                                  every flag of a recipe, with its meaning and default
"""


@dataclass(frozen=True)
class Planning:
    """What plan takes beside the flags of the recipe."""

    on: tuple[str, ...] = ()
    """Devices to plan for, one kind after the other: v4-32, v5e-16, h100x8, cpu. Unset: this machine's."""
    shardings: bool = False
    """Also list every parameter, how it is divided, and how much of it a device keeps."""
    json: bool = False
    """Print one JSON object for each run and each kind of devices, in place of tables."""
    search: bool = True
    """Where the run does not fit, compile changes of it until one does."""
    debug: bool = False
    """Show the whole traceback when something fails (or set SPANLOOM_DEBUG=1)."""


def main(argv: Sequence[str]) -> int:
    """Run the command; the exit code."""
    recipe = first_word(argv, USAGE, "the recipe comes first: spanloom plan RECIPE [--on v4-32] [flags]")
    prog = f"spanloom plan {recipe}"
    command = parse(find(recipe), argv[1:], prog, Planning, f"{prog} [--on v4-32 ...] [flags]")
    asked = command.options
    places = [_topology(name) for name in asked.on] or [None]
    _prepare(places, asked.on)
    runs = _runs(command)
    found = [list(_plans(run, places, asked)) for run in runs]
    if len(runs) > 1 and not asked.json:
        from spanloom.report.plan import sum_line

        for plans in zip(*found, strict=True):
            print(sum_line(plans), end="")
    return 0


def _runs(command: Command[Planning]) -> tuple[Run, ...]:
    """The run, or the stages, resolved; where files were not given there are names in their place."""
    from spanloom.cli.stages import resolved_runs
    from spanloom.training.plan_data import without_files

    return resolved_runs(replace(command, runs=tuple(map(without_files, command.runs))))


def _topology(name: str) -> "Topology | None":
    """The devices of a name; None: this machine's."""
    from spanloom.scale.topologies import UnknownTopologyError, topology

    if name.lower() == "cpu":
        return None
    try:
        return topology(name)
    except UnknownTopologyError as error:
        raise UsageError(f"--on {name}: {error}") from None


def _prepare(places: Sequence["Topology | None"], names: Sequence[str]) -> None:
    """The environment, before JAX is imported: for devices that are not here it need not look for any."""
    from spanloom.scale.libtpu import prepare_libtpu

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if names:
        os.environ["JAX_PLATFORMS"] = "cpu"
    if any(place is not None and place.layout for place in places):
        prepare_libtpu()


def _plans(run: Run, places: Sequence["Topology | None"], asked: Planning) -> "Iterator[Plan]":
    """The plan of a run on each kind of devices, printed as it is there."""
    from spanloom.scale.mesh import MeshError
    from spanloom.training.plan import make_plan
    from spanloom.training.plan_data import UnknownLengthError, plan_data

    try:
        data = plan_data(run, Path(run.out or "."))
    except UnknownLengthError as error:
        raise UsageError(str(error)) from None
    for place in places:
        try:
            plan = make_plan(run, data, place, search=asked.search, say=_say)
        except MeshError as error:
            raise CommandError(f"on {place.name if place else 'this machine'}: {error}") from None
        _print(plan, asked)
        yield plan


def _say(line: str) -> None:
    print(f"{line} ...", file=sys.stderr, flush=True)


def _print(plan: "Plan", asked: Planning) -> None:
    if asked.json:
        print(json.dumps(plan.as_json()), flush=True)
        return
    from spanloom.report.plan import plan_text, shardings_text

    out = sys.stdout
    width, colour = width_and_colour(out)
    out.write(plan_text(plan, width=width, colour=colour))
    if asked.shardings:
        out.write("\n" + shardings_text(plan))
    out.write("\n")
    out.flush()
