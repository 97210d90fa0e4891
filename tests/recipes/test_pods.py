"""Shipped recipes fit the devices that their docstrings name: compiled for them, not argued."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from libtpu_here import needs_libtpu

from spanloom.model.sizes import named
from spanloom.recipes import hmbyt5, ro_t5, t5_1_1_small_c4
from spanloom.scale.topologies import topology
from spanloom.settings.run import Run
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import plan_data, without_files


def of_byt5_small() -> Run:
    """The first language, without the checkpoint that it begins with."""
    (first, *_), _ = hmbyt5.example()
    return replace(
        first, model=named("byt5_small", dtype="bfloat16", remat="cheap"), follow=type(first.follow)(), start=None
    )


PLACES: dict[str, tuple[str, Callable[[], Run]]] = {
    "hmbyt5": ("v3-32", of_byt5_small),
    "ro_t5 base": ("v4-8", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model")),
    "ro_t5 large": ("v4-32", lambda: ro_t5.recipe(("a.txt",), vocabulary="ro.model", model="t5_1_1_large")),
    "t5_1_1_small_c4": ("v4-8", lambda: t5_1_1_small_c4.recipe(("a.txt",))),
}


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("name", PLACES)
def test_a_step_fits_the_hardware_that_it_names(name, tmp_path):
    place, make = PLACES[name]
    run = without_files(make()).resolve()
    found = make_plan(run, plan_data(run, tmp_path), topology(place), search=False)
    assert found.why == "" and found.needs.fits, found.needs
    assert found.hours is not None and found.hours > 0
