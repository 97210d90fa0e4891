from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from spanloom.recipes.quickstart import recipe
from spanloom.training import fits
from spanloom.training.fits import (
    DoesNotFitError,
    available_memory,
    check_fits,
    check_heldout_fits,
    explaining_memory,
)

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
        check_fits(compiled(weights=20 * MB, passes=10 * MB), run, 15 * MB, LENGTHS, devices=8)
    assert "--mesh.fsdp" in str(error.value) and "spanloom plan" in str(error.value)


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
