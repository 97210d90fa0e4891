"""The largest models fit the slices that their recipe is for: compiled for them, not argued."""

import ast
import re
from dataclasses import replace

import jax
import pytest
from libtpu_here import needs_libtpu

from spanloom.model.flops import train_flops
from spanloom.recipes import shipped
from spanloom.recipes.xxl import MESHES, recipe
from spanloom.scale.mesh import check_batch, make_layout
from spanloom.scale.topologies import topology
from spanloom.settings.run import Run
from spanloom.settings.serialize import from_json, to_json
from spanloom.training.abstract import lower_step
from spanloom.training.needs import abstract_layout
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import plan_data, without_files

CASES = [(size, place) for size in ("t5_1_1_xxl", "mt5_xxl") for place in MESHES]


def run_of(size: str, place: str) -> Run:
    return without_files(recipe(size=size, slice=place)).resolve()


@pytest.mark.short
@pytest.mark.parametrize(("size", "place"), CASES)
def test_its_batches_can_be_shared(size, place, tmp_path):
    run = run_of(size, place)
    layout = abstract_layout(run, topology(place).devices)
    check_batch(layout, run.at_a_time)
    assert from_json(to_json(run)) == run and plan_data(run, tmp_path).lengths == {"encoder": 512, "decoder": 114}


@pytest.mark.short
def test_it_costs_what_it_says():
    step, whole = (float(number) for number in re.findall(r"\d\.\de\d+", _doc()))
    flops = train_flops(recipe().model, 2048, 512, 114)
    assert step == pytest.approx(flops, rel=0.04) and whole == pytest.approx(flops * recipe().steps, rel=0.04)


@pytest.mark.parametrize("size", ["t5_1_1_xxl", "mt5_xxl"])
def test_what_is_compiled_is_no_longer_for_many_layers(size, tmp_path):
    """A layer is compiled once and runs in a loop: time to compile and to start up does not grow with layers."""
    run = run_of(size, "v5e-256")
    run = replace(run, batch_size=2, microbatch_size=None, mesh=replace(run.mesh, fsdp=1, tensor=1))

    def length(layers: int) -> int:
        model = replace(run.model, num_encoder_layers=layers, num_decoder_layers=layers)
        lengths = plan_data(run, tmp_path).lengths
        text = lower_step(replace(run, model=model), lengths, make_layout(run.mesh, jax.devices()[:1])).as_text()
        return len(text.splitlines())

    assert run.model.num_encoder_layers == 24
    assert length(24) == length(4)


@pytest.mark.slow
@needs_libtpu
@pytest.mark.parametrize(("size", "place"), CASES)
def test_its_step_fits(size, place, tmp_path):
    run = run_of(size, place)
    found = make_plan(run, plan_data(run, tmp_path), topology(place), search=False)
    assert found.why == "" and found.needs.fits, found.needs
    assert found.compiled.cost.flops * found.on.devices == pytest.approx(found.formula_flops, rel=0.1)


@pytest.mark.slow
@needs_libtpu
def test_one_device_of_them_would_not_hold_it(tmp_path):
    run = replace(
        run_of("t5_1_1_xxl", "v5e-256"),
        batch_size=4,
        microbatch_size=None,
        mesh=replace(MESHES["v5e-256"][0], fsdp=1, tensor=1),
    )
    assert make_plan(run, plan_data(run, tmp_path), topology("v5e-4"), search=False).needs.fits is False


def _doc() -> str:
    return ast.get_docstring(ast.parse(shipped()["xxl"].read_text())) or ""
