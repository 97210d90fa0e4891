import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model.attention import MASKED, attention, padding_mask, position_bias, position_bucket

sys.path.insert(0, str(Path(__file__).parent))
import reference_t5 as reference


def naive(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array, mask: jax.Array, keep: jax.Array) -> jax.Array:
    weights = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k) + bias + mask, axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights * jnp.moveaxis(keep, 1, 3).reshape(2, 3, 1, 7), v)


def ours(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array, mask: jax.Array, keep: jax.Array) -> jax.Array:
    return attention(q, k, v * keep, bias, mask)


def operands() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v = (jax.random.normal(key, (2, length, 3, 4)) for key, length in zip(keys, (5, 7, 7), strict=False))
    bias = jax.random.normal(keys[3], (1, 3, 5, 7))
    mask = jnp.where(np.arange(7) < np.array([[7], [4]]), 0.0, MASKED)[:, None, None]
    mask = jnp.broadcast_to(mask, (2, 1, 5, 7)).at[1, :, 2].set(MASKED)  # one query that may see nothing
    keep = 2.0 * jax.random.bernoulli(jax.random.key(1), 0.5, (2, 7, 3, 1))
    return [q, k, v, bias, mask, keep]


def test_value_and_gradient_are_those_of_plain_softmax_attention() -> None:
    args = operands()
    np.testing.assert_allclose(ours(*args), naive(*args), atol=1e-6)
    weight = jax.random.normal(jax.random.key(2), (2, 5, 3, 4))
    optimized = {"xla_backend_optimization_level": 3}  # rounded as users have it, with products and sums fused
    mine, theirs = (
        jax.jit(
            jax.grad(lambda *a, f=f: jnp.sum(f(*a, *args[4:]) * weight), argnums=(0, 1, 2, 3)),
            compiler_options=optimized,
        )(*args[:4])
        for f in (ours, naive)
    )
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=2e-6)


def test_without_bias_and_in_bfloat16() -> None:
    q, k, v, bias, mask, keep = operands()
    ones = jnp.ones_like(keep)
    np.testing.assert_allclose(attention(q, k, v, None, mask), naive(q, k, v, 0 * bias, mask, ones), atol=1e-6)
    half = [x.astype(jnp.bfloat16) for x in (q, k, v)]
    output = attention(*half, bias, mask)
    assert output.dtype == jnp.bfloat16
    np.testing.assert_allclose(output.astype(jnp.float32), naive(q, k, v, bias, mask, ones), atol=0.06)
    gradient = jax.grad(lambda q: jnp.sum(attention(q, *half[1:], bias, mask).astype(jnp.float32)))(half[0])
    assert gradient.dtype == jnp.bfloat16


def test_sharper_weights_do_not_overflow() -> None:
    q, k, v, bias, mask, _ = operands()
    assert np.isfinite(attention(1e3 * q, 1e3 * k, v, bias, mask)).all()
    assert np.isfinite(jax.grad(lambda q: jnp.sum(attention(q, 1e3 * k, v, bias, mask)))(1e3 * q)).all()


@pytest.mark.short
def test_padding_mask() -> None:
    valid = np.array([[True, True, False]])
    segments = np.array([[1, 2, 0]])
    seen = lambda mask: np.asarray(mask == 0).astype(int).tolist()  # noqa: E731
    assert seen(padding_mask(valid)) == [[[[1, 1, 0]]]]
    assert seen(padding_mask(valid, causal=True)) == [[[[1, 0, 0], [1, 1, 0], [1, 1, 0]]]]
    assert seen(padding_mask(valid, segments, segments)) == [[[[1, 0, 0], [0, 1, 0], [0, 0, 0]]]]


@pytest.mark.short
def test_buckets_begin_where_the_t5_code_has_them() -> None:
    distances = np.arange(0, 2048)
    size = {"buckets": 32, "max_distance": 128}
    past = position_bucket(-distances, bidirectional=False, **size)
    starts = [int(np.argmax(past == bucket)) for bucket in range(32)]
    assert starts == [*range(17), 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    both = position_bucket(-distances, bidirectional=True, **size)
    assert [int(np.argmax(both == bucket)) for bucket in range(16)] == [*range(9), 12, 16, 23, 32, 46, 64, 91]
    future = position_bucket(distances, bidirectional=True, **size)
    np.testing.assert_array_equal(future[1:], both[1:] + 16)
    assert (position_bucket(distances, bidirectional=False, **size) == 0).all()


@pytest.mark.parametrize("both_ways", [True, False])
def test_position_bias_reads_the_table_for_every_pair(both_ways: bool) -> None:
    table = jax.random.normal(jax.random.key(0), (3, 8))
    for queries, keys in ((6, 6), (1, 5), (30, 30), (4, 9), (9, 4)):
        ours = position_bias(table, queries, keys, bidirectional=both_ways, max_distance=12)
        assert ours.shape == (1, 3, queries, keys)
        index = [[reference.bucket(s - t, both_ways, 8, 12) for s in range(keys)] for t in range(queries)]
        np.testing.assert_allclose(ours[0], table[:, np.array(index)], rtol=1e-6)


def test_gradient_of_the_position_table() -> None:
    table, weight = jax.random.normal(jax.random.key(0), (3, 8)), jax.random.normal(jax.random.key(1), (3, 20, 20))
    index = np.array([[reference.bucket(s - t, True, 8, 12) for s in range(20)] for t in range(20)])
    ours = jax.grad(lambda t: jnp.sum(position_bias(t, 20, 20, bidirectional=True, max_distance=12)[0] * weight))(table)
    np.testing.assert_allclose(ours, jax.grad(lambda t: jnp.sum(t[:, index] * weight))(table), atol=1e-4)
