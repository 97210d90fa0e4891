"""Shipped recipes fit the devices that their docstrings name: compiled for them, not argued."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType

import pytest
from libtpu_here import needs_libtpu

from spanloom.model.sizes import named
from spanloom.recipes import hmbyt5, lm_adaptation, mt0, ro_t5, t0, t5_1_1_small_c4
from spanloom.recipes._slices import on_slice
from spanloom.scale.mesh import check_batch
from spanloom.scale.topologies import topology
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json, to_json
from spanloom.training.needs import abstract_layout
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import plan_data, without_files


def of_byt5_small() -> Run:
    """The first language, without the checkpoint that it begins with."""
    (first, *_), _ = hmbyt5.example()
    return replace(
        first, model=named("byt5_small", dtype="bfloat16", remat="cheap"), follow=type(first.follow)(), start=None
    )


def fine_tuned(recipe: ModuleType, size: str, place: str) -> Run:
    """A recipe's run on a slice of its own, without the checkpoint that tells its model."""
    run, _ = recipe.example()
    run = replace(run, model=named(size, dropout=run.model.dropout))
    return without_files(on_slice(run, recipe.SLICES[place]))


PLACES: dict[str, tuple[str, Callable[[], Run]]] = {
    "hmbyt5": ("v3-32", of_byt5_small),
    "ro_t5 base": ("v4-8", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model")),
    "ro_t5 large": ("v4-32", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model", model="t5_1_1_large")),
    "t5_1_1_small_c4": ("v4-8", lambda: t5_1_1_small_c4.recipe(("a.txt",))),
}
SIZES = {
    ("t0", "v3-512"): "t5_1_1_xxl",
    ("t0", "v3-128"): "t5_1_1_xl",
    ("lm_adaptation", "v4-256"): "mt5_xxl",
    ("mt0", "v4-256"): "mt5_xxl",
    ("mt0", "v4-64"): "mt5_large",
}
"""The model that each slice of these recipes is for."""
PLACES |= {
    f"{name} {place}": (place, partial(fine_tuned, recipe, SIZES[name, place], place))
    for name, recipe in {"t0": t0, "lm_adaptation": lm_adaptation, "mt0": mt0}.items()
    for place in recipe.SLICES
}


@pytest.mark.short
@pytest.mark.parametrize("name", [name for name in PLACES if name.split()[0] in ("t0", "lm_adaptation", "mt0")])
def test_batches_can_be_shared_on_the_slices_that_recipes_have(name):
    place, make = PLACES[name]
    run = make().resolve()
    check_batch(abstract_layout(run, topology(place).devices), run.at_a_time)
    assert (run.model.dtype, run.model.remat) == ("bfloat16", "cheap") and from_json(to_json(run)) == run


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("name", PLACES)
def test_a_step_fits_the_hardware_that_it_names(name, tmp_path):
    place, make = PLACES[name]
    run = without_files(make()).resolve()
    found = make_plan(run, plan_data(run, tmp_path), topology(place), search=False)
    assert found.why == "" and found.needs.fits, found.needs
    assert found.hours is not None and found.hours > 0
