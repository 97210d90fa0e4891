import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model.layers import ACTIVATIONS, activate, dense, dropout, normed_dense, rms_norm
from spanloom.model.params import Dense, Norm


def plain_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * scale


def plain_dense(x: jax.Array, *kernels: jax.Array) -> jax.Array:
    return jnp.concatenate([x @ kernel for kernel in kernels], axis=-1)


def same_gradients(ours: object, theirs: object, *args: jax.Array) -> None:
    weight = jax.random.normal(jax.random.key(9), jnp.shape(theirs(*args)))  # type: ignore[operator]
    gradients = [
        jax.grad(lambda *a, f=f: jnp.sum(f(*a) * weight), argnums=tuple(range(len(args))))(*args)
        for f in (ours, theirs)
    ]
    for mine, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


X = jax.random.normal(jax.random.key(0), (2, 5, 8))


def test_gradient_of_the_norm() -> None:
    scale = jax.random.normal(jax.random.key(1), (8,))
    same_gradients(lambda x, s: rms_norm(x, Norm(s), 1e-6), plain_norm, X, scale)


@pytest.mark.parametrize(("count", "width"), [(1, 3), (2, 8), (3, 20)])
def test_gradient_of_products(count: int, width: int) -> None:
    kernels = tuple(jax.random.normal(jax.random.key(i), (8, width)) for i in range(count))
    ours = lambda x, *ks: jnp.concatenate(dense(x, *(Dense(k) for k in ks)), axis=-1)  # noqa: E731
    np.testing.assert_allclose(ours(X, *kernels), plain_dense(X, *kernels), rtol=1e-5, atol=1e-5)
    same_gradients(ours, plain_dense, X, *kernels)


def test_a_norm_with_its_products_is_one_after_the_other() -> None:
    scale = jax.random.normal(jax.random.key(1), (8,))
    kernels = tuple(jax.random.normal(jax.random.key(i), (8, 3)) for i in (2, 3))
    ours = lambda x, s, *ks: jnp.concatenate(  # noqa: E731
        normed_dense(x, Norm(s), 1e-6, *(Dense(k) for k in ks)), axis=-1
    )
    same_gradients(ours, lambda x, s, *ks: plain_dense(plain_norm(x, s), *ks), X, scale, *kernels)


@pytest.mark.parametrize("names", [("relu",), ("gelu", "linear"), ("silu", "gelu")])
def test_gradient_of_activations(names: tuple[str, ...]) -> None:
    branches = [jax.random.normal(jax.random.key(i), (2, 5, 8)) for i in range(len(names))]

    def plain(*xs: jax.Array) -> jax.Array:
        result = jnp.ones(())
        for name, x in zip(names, xs, strict=True):
            result = result * ACTIVATIONS[name](x)
        return result

    np.testing.assert_allclose(activate(names, *branches), plain(*branches), rtol=1e-6)
    same_gradients(lambda *xs: activate(names, *xs), plain, *branches)


def test_bfloat16_stays_and_master_gradients_are_float32() -> None:
    x, kernel, scale = X.astype(jnp.bfloat16), jnp.ones((8, 4)), jnp.ones(8)

    def loss(k: jax.Array, s: jax.Array) -> jax.Array:
        (y,) = dense(rms_norm(x, Norm(s), 1e-6), Dense(k))
        assert y.dtype == jnp.bfloat16
        return jnp.sum(y.astype(jnp.float32))

    assert [g.dtype for g in jax.grad(loss, argnums=(0, 1))(kernel, scale)] == [jnp.float32, jnp.float32]


def test_dropout_is_the_same_along_the_length_or_not() -> None:
    ones = jnp.ones((3, 50, 400))
    same = np.asarray(dropout(ones, jax.random.key(0), 0.1))
    assert (same == same[:, :1]).all()
    assert set(np.unique(same)) == {np.float32(0), np.float32(1) / np.float32(0.9)}
    assert (same == 0).mean() == pytest.approx(0.1, abs=0.03)
    apart = np.asarray(dropout(ones, jax.random.key(0), 0.1, same_along_length=False))
    assert not (apart == apart[:, :1]).all()
    assert (apart == 0).mean() == pytest.approx(0.1, abs=0.005)
    assert dropout(ones, None, 0.1) is ones and dropout(ones, jax.random.key(0), 0.0) is ones
