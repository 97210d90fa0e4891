from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from spanloom.model.sizes import named
from spanloom.recipes.quickstart import recipe
from spanloom.scale.topologies import topology
from spanloom.settings.mesh import Mesh
from spanloom.training import fits
from spanloom.training.fits import (
    DoesNotFitError,
    available_memory,
    check_fits,
    check_heldout_fits,
    explaining_memory,
)
from spanloom.training.plan import make_plan
from spanloom.training.plan_data import PlanData

pytestmark = pytest.mark.short
MB = 10**6


def compiled(*, weights: int, passes: int) -> SimpleNamespace:
    """What a compiled step tells of its memory; weights are donated, so that they come and go in the same place."""
    sizes = SimpleNamespace(
        argument_size_in_bytes=weights,
        output_size_in_bytes=weights,
        alias_size_in_bytes=weights,
        temp_size_in_bytes=passes,
    )
    return SimpleNamespace(memory_analysis=lambda: sizes)


def test_a_step_that_fits_is_let_through():
    check_fits(compiled(weights=400 * MB, passes=600 * MB), recipe(), 1000 * MB)
    check_fits(compiled(weights=400 * MB, passes=600 * MB), recipe(), None)


def test_a_step_that_does_not_fit_names_the_batch_that_does():
    run = replace(recipe(), batch_size=60)
    with pytest.raises(DoesNotFitError) as error:
        check_fits(compiled(weights=400 * MB, passes=1200 * MB), run, 1000 * MB)
    assert "60 sequences takes 1.6 GB (0.4 of it for weights and optimizer), and there are 1.0 GB" in str(error.value)
    assert "--microbatch-size 30 (the same batch in parts), --batch-size 30 (another batch)" in str(error.value)
    check_fits(compiled(weights=400 * MB, passes=600 * MB), run, 1000 * MB)


def test_where_not_even_the_weights_fit_no_batch_is_named():
    with pytest.raises(DoesNotFitError) as error:
        check_fits(compiled(weights=1400 * MB, passes=600 * MB), recipe(), 1000 * MB)
    assert "--batch-size" not in str(error.value) and "smaller --model" in str(error.value)


def test_a_held_out_batch_is_looked_at_with_the_optimizer_in_memory():
    run = replace(recipe(), batch_size=2)
    run = replace(run, eval=replace(run.eval, batch_size=60))
    optimizer = 200 * MB
    step = compiled(weights=200 * MB, passes=1200 * MB)
    check_heldout_fits(step, run, 1600 * MB, optimizer)
    check_heldout_fits(step, run, None, optimizer)
    with pytest.raises(DoesNotFitError, match=r"held-out batch of 60 .* 1\.6 GB \(0\.4 of it .*--eval.batch-size 30$"):
        check_heldout_fits(step, run, 1000 * MB, optimizer)
    with pytest.raises(DoesNotFitError, match=r"--eval.batch-size 2$"):
        check_heldout_fits(step, run, 400 * MB, optimizer)


def test_what_the_compiler_says_of_a_real_step_is_understood():
    step = jax.jit(lambda x: jnp.sin(x @ x.T).sum()).lower(jnp.ones((512, 64))).compile()
    check_fits(step, recipe(), 4 * MB)
    with pytest.raises(DoesNotFitError):
        check_fits(step, recipe(), 512 * 64 * 4)  # the argument alone


def test_a_container_with_less_than_the_machine_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(fits, "_CGROUP_LIMITS", ())
    machine = available_memory(jax.devices("cpu")[0])
    assert machine is not None and machine > 100 * MB
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(fits, "_CGROUP_LIMITS", (str(limit), str(tmp_path / "absent")))
    for text, expected in [("max\n", machine), (f"{64 * MB}\n", 64 * MB), (str(2**63 - 4096), machine)]:
        limit.write_text(text)
        assert available_memory(jax.devices("cpu")[0]) == expected


LENGTHS = {"encoder": 128, "decoder": 59}


def test_the_smallest_change_is_named_as_flags():
    run = recipe().resolve()
    with pytest.raises(DoesNotFitError) as error:
        check_fits(compiled(weights=20 * MB, passes=2000 * MB), run, 1500 * MB, LENGTHS, devices=1)
    assert "What helps: --microbatch-size 8" in str(error.value) or "What helps: --model.remat" in str(error.value)
    with pytest.raises(DoesNotFitError) as error:
        # Less than the weights and what the optimizer keeps of them; gradients are in eight parts as it is.
        check_fits(compiled(weights=20 * MB, passes=10 * MB), run, 8 * MB, LENGTHS, devices=8)
    assert "--mesh.fsdp" in str(error.value) and "spanloom plan" in str(error.value)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"batch_size": 2**16}, "h100x1"),
        ({"batch_size": 3 * 2**15}, "h100x8"),
        ({"batch_size": 2**17, "mesh": Mesh(fsdp=2)}, "h100x8"),
        ({"model": named("byt5_xxl"), "batch_size": 8}, "h100x8"),
        ({"model": replace(named("byt5_xl"), num_encoder_layers=16, remat="full"), "batch_size": 1024}, "h100x1"),
    ],
)
def test_a_run_that_dies_of_memory_names_the_flags_of_its_plan(monkeypatch, changes, place):
    """Before the first step, as the compiler has it, and in the middle of one alike."""
    run, on = replace(recipe(), **changes).resolve(), topology(place)
    planned = make_plan(run, PlanData(LENGTHS), on)
    assert planned.needs.fits is False and planned.change is not None
    needs, available = planned.needs, int(planned.needs.available)
    stays = int(needs.parts["weights"] + needs.parts["optimizer"])
    step = compiled(weights=stays, passes=int(needs.total) - stays)
    monkeypatch.setattr(fits, "available_memory", lambda device: available)
    with pytest.raises(DoesNotFitError) as refused:
        check_fits(step, run, available, LENGTHS, on.devices)
    with pytest.raises(DoesNotFitError) as died, explaining_memory(run, LENGTHS, on.devices):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")
    for error in (refused, died):
        assert f"What helps: {' '.join(planned.change.flags)} (the same batches" in str(error.value)
        assert str(error.value).count("--microbatch-size") <= 1


@pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "INTERNAL: Error dispatching computation"])
def test_memory_that_runs_out_in_the_middle_names_it_too(code):
    run = recipe().resolve()
    exhausted = jax.errors.JaxRuntimeError(f"{code}: Out of memory allocating 1 bytes.\nmore")
    with pytest.raises(DoesNotFitError) as error, explaining_memory(run, LENGTHS, 1):
        raise exhausted
    assert str(error.value).startswith(f"memory ran out ({code}: Out of memory allocating 1 bytes.). What")
    assert "--microbatch-size" in str(error.value) and error.value.__cause__ is exhausted
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), explaining_memory(run, LENGTHS, 1):
        raise jax.errors.JaxRuntimeError("INTERNAL: no")
