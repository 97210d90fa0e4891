"""Shipped recipes fit the devices that their docstrings name: compiled for them, not argued (benchmarks/pods.py)."""

import runpy
from pathlib import Path

import pytest
from libtpu_here import needs_libtpu

from spanloom.recipes import lm_adaptation, mt0, t0
from spanloom.scale.mesh import check_batch
from spanloom.scale.topologies import topology
from spanloom.settings.serialize import from_json, to_json
from spanloom.training.needs import abstract_layout

PODS = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "pods.py"))
OF_SLICES = [name for name in PODS["RUNS"] if name.split()[0] in ("t0", "lm_adaptation", "mt0")]


@pytest.mark.short
@pytest.mark.parametrize("name", OF_SLICES)
def test_batches_can_be_shared_on_the_slices_that_recipes_have(name):
    place, run = PODS["RUNS"][name][0], PODS["run_of"](name)
    check_batch(abstract_layout(run, topology(place).devices), run.at_a_time)
    assert (run.model.dtype, run.model.remat) == ("bfloat16", "cheap") and from_json(to_json(run)) == run


@pytest.mark.short
def test_all_slices_of_recipes_are_compiled_for():
    assert set(PODS["SIZES"]) == {(recipe, place) for recipe in (t0, lm_adaptation, mt0) for place in recipe.SLICES}


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize("name", [name for name in PODS["RUNS"] if not name.startswith("xxl")])
def test_a_step_fits_the_hardware_that_it_names(name):
    row = PODS["measure"](name)
    assert row["fits"] and row["hours_at_least"] > 0, row
