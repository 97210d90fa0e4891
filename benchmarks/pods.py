"""Whether the recipes for pods fit the devices they are for, and the least they take: compiled ahead of time for each.

    .venv/bin/python benchmarks/pods.py [--only mt0 xxl ...] [--output FILE]

As `spanloom plan NAME --slice PLACE --on PLACE` does, for all of them, with the published size where a recipe learns
its model from a checkpoint. Needs libtpu, TPU's compiler, and no TPU: pip install 'spanloom[tpu]'. A step takes 1 to 4
minutes of one core to compile. Exit status 1 if one does not fit.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from spanloom.model.sizes import named
from spanloom.recipes import hmbyt5, lm_adaptation, mt0, ro_t5, t0, t5_1_1_small_c4, xxl
from spanloom.recipes._slices import on_slice
from spanloom.scale.topologies import topology
from spanloom.settings.run import Run
from spanloom.training.plan_data import without_files

SIZES: dict[tuple[ModuleType, str], str] = {
    (t0, "v3-512"): "t5_1_1_xxl",
    (t0, "v3-128"): "t5_1_1_xl",
    (lm_adaptation, "v4-256"): "mt5_xxl",
    (mt0, "v4-256"): "mt5_xxl",
    (mt0, "v4-64"): "mt5_large",
}
"""The model that each slice of these recipes is for."""


def of_byt5_small() -> Run:
    """The first language, without the checkpoint that it begins with."""
    (first, *_), _ = hmbyt5.example()
    model = named("byt5_small", dtype="bfloat16", remat="cheap")
    return replace(first, model=model, follow=type(first.follow)(), start=None)


def fine_tuned(recipe: ModuleType, place: str) -> Run:
    """A recipe's run on a slice of its own, without the checkpoint that tells its model."""
    run, _ = recipe.example()
    run = replace(run, model=named(SIZES[recipe, place], dropout=run.model.dropout))
    return on_slice(run, recipe.SLICES[place])


def of_xxl(size: Any, place: Any) -> Run:
    """The recipe's run."""
    return xxl.recipe(size=size, slice=place)


RUNS: dict[str, tuple[str, Callable[[], Run]]] = {
    "hmbyt5": ("v3-32", of_byt5_small),
    "ro_t5 base": ("v4-8", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model")),
    "ro_t5 large": ("v4-32", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model", model="t5_1_1_large")),
    "t5_1_1_small_c4": ("v4-8", lambda: t5_1_1_small_c4.recipe(("a.txt",))),
    **{
        f"{recipe.__name__.rpartition('.')[2]} {place}": (place, partial(fine_tuned, recipe, place))
        for recipe, place in SIZES
    },
    **{
        f"xxl {size} {place}": (place, partial(of_xxl, size, place))
        for size in ("t5_1_1_xxl", "mt5_xxl")
        for place in xxl.MESHES
    },
}
"""By name: devices, and the run that is for them."""


def run_of(name: str) -> Run:
    """Resolved, without files that a plan has no need of."""
    return without_files(RUNS[name][1]()).resolve()


def measure(name: str) -> dict[str, Any]:
    """What `spanloom plan` says of one."""
    from spanloom.training.plan import make_plan
    from spanloom.training.plan_data import plan_data

    place, run = RUNS[name][0], run_of(name)
    with tempfile.TemporaryDirectory() as folder:
        plan = make_plan(run, plan_data(run, Path(folder)), topology(place), search=False)
    assert plan.compiled is not None, plan.why
    memory = plan.needs
    return {
        "name": name,
        "on": place,
        "gib": memory.total / 2**30,
        "available_gib": None if memory.available is None else memory.available / 2**30,
        "fits": memory.fits,
        "tflop_of_a_device": plan.compiled.cost.flops / 1e12,
        "hours_at_least": plan.hours,
        "compile_s": plan.compiled.seconds,
    }


def main() -> int:
    """Compile and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="names, or how they begin", default=[""])
    parser.add_argument("--output", type=Path, help="also write the rows as JSON, after each")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print("| run | on | GiB of a device | hours at least | compile s |\n|---|---|---|---|---|", flush=True)
    for name in (name for name in RUNS if name.startswith(tuple(args.only))):
        rows.append(row := measure(name))
        memory = f"{row['gib']:.1f} of {row['available_gib']:.2f}"
        print(f"| {name} | {row['on']} | {memory} | {row['hours_at_least']:.1f} | {row['compile_s']:.0f} |", flush=True)
        if args.output:
            args.output.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["fits"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
