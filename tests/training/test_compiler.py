import jax
import jax.numpy as jnp
import pytest

from spanloom.training.compiler import compiler_options


@pytest.mark.short
def test_the_compiler_knows_the_options() -> None:
    assert float(jax.jit(jnp.sum, compiler_options=compiler_options())(jnp.ones(3))) == 3
