import jax
import jax.numpy as jnp
import pytest

from spanloom.training.compiler import compiler_options, return_freed_memory


@pytest.mark.short
def test_the_compiler_knows_the_options() -> None:
    assert float(jax.jit(jnp.sum, compiler_options=compiler_options())(jnp.ones(3))) == 3


@pytest.mark.short
def test_returning_memory_leaves_arrays_alone() -> None:
    x = jnp.arange(1000)
    return_freed_memory()
    assert int(x.sum()) == 499500
