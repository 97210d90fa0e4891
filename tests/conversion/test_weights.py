"""Matrices that lie in their files with axes swapped."""

import jax
import numpy as np
import pytest

from spanloom.conversion.weights import in_order, same_bits


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1000, 1001), (3, 400_000), (400_000, 3), (1, 2**21)])
def test_a_turned_matrix_is_put_in_order(shape):
    lying = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    found = in_order(lying.T)
    assert found.flags.c_contiguous and np.array_equal(found, lying.T)
    assert same_bits(lying.T, found)


def test_what_was_put_in_order_is_taken_by_jax_as_it_is():
    found = in_order(np.ones((300, 500), np.float32).T)
    assert jax.device_put(found, jax.devices("cpu")[0]).unsafe_buffer_pointer() == found.ctypes.data
