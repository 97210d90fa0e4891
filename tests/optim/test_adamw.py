from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spanloom.optim.build import build
from spanloom.optim.clipping import clip_by_global_norm, clip_scale, global_norm
from spanloom.settings.optimizer import AdamW, AdamWRMS, Constant, Linear


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    axes: tuple[str, ...]


SPECS = {
    "kernel": Spec((3, 4, 5), ("layers", "embed", "mlp")),
    "scale": Spec((3, 4), ("layers", "embed")),
    "embedding": Spec((6, 4), ("vocab", "embed")),
}


def made(seed, specs=SPECS, size=1.0):
    rng = np.random.default_rng(seed)
    return {n: jnp.asarray(rng.normal(size=s.shape) * size, jnp.float32) for n, s in specs.items()}


def run(optimizer, params, steps=4):
    state = optimizer.init(params)
    for step in range(steps):
        updates, state = jax.jit(optimizer.update)(made(100 + step), state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.short
def test_adamw_is_that_of_optax_with_decay_on_matrices_only():
    settings = AdamW(learning_rate=0.01, beta2=0.95, weight_decay=0.1, global_norm_clip=None)
    mask = {"kernel": True, "scale": False, "embedding": True}
    schedule = Linear(warmup_steps=2, decay_steps=10)
    theirs = optax.adamw(lambda t: 0.01 * jnp.where(t < 2, t / 2, (10 - t) / 8), b2=0.95, weight_decay=0.1, mask=mask)
    expected = run(theirs, made(0))
    for name, got in run(build(settings, schedule, SPECS), made(0)).items():
        np.testing.assert_allclose(got, expected[name], rtol=1e-5, atol=1e-7)


def test_rms_scaling_is_per_layer_and_has_a_floor():
    settings = AdamWRMS(learning_rate=0.02, min_scale=0.5, global_norm_clip=None)
    params = made(0)
    params["kernel"] = params["kernel"] * jnp.array([0.01, 1.0, 10.0])[:, None, None]
    plain = build(AdamW(learning_rate=0.02, epsilon=settings.epsilon, global_norm_clip=None), Constant(), SPECS)
    scaled = build(settings, Constant(), SPECS)
    one, _ = plain.update(made(1), plain.init(params), params)
    two, _ = scaled.update(made(1), scaled.init(params), params)
    for layer in range(3):
        rms = float(jnp.sqrt(jnp.mean(params["kernel"][layer] ** 2)))
        np.testing.assert_allclose(two["kernel"][layer], one["kernel"][layer] * max(rms, 0.5), rtol=1e-5)
    assert float(jnp.sqrt(jnp.mean(params["kernel"][0] ** 2))) < 0.5


def test_rms_scaling_spares_the_decay():
    """With no gradient only the decay moves a matrix: by learning rate times decay, whatever its size."""
    optimizer = build(AdamWRMS(learning_rate=0.1, weight_decay=0.5), Constant(), SPECS)
    params = made(0, size=7.0)
    zeros = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(zeros, optimizer.init(params), params)
    np.testing.assert_allclose(updates["kernel"], -0.05 * params["kernel"], rtol=1e-6)
    assert not np.any(updates["scale"])


def test_rms_scaling_needs_parameters():
    optimizer = build(AdamWRMS(), Constant(), SPECS)
    with pytest.raises(ValueError, match="update\\(grads, state, params\\)"):
        optimizer.update(made(1), optimizer.init(made(0)))


@pytest.mark.short
def test_clipping_to_a_global_norm():
    grads = {"a": jnp.array([3.0]), "b": jnp.array([[4.0]])}
    assert float(global_norm(grads)) == 5.0
    np.testing.assert_allclose(clip_scale(grads, 1.0), 0.2, rtol=1e-6)
    np.testing.assert_allclose(clip_scale(grads, 10.0), 1.0, rtol=1e-6)
    clip = clip_by_global_norm(1.0)
    clipped, _ = clip.update(grads, clip.init(grads))
    np.testing.assert_allclose(clipped["b"], [[0.8]], rtol=1e-6)
    zero = {"a": jnp.zeros(3)}
    np.testing.assert_allclose(clip.update(zero, clip.init(zero))[0]["a"], 0.0)


def test_clipping_bounds_adam_moments():
    optimizer = build(AdamW(global_norm_clip=0.5), Constant(), SPECS)
    params = made(0)
    _, state = optimizer.update(made(1, size=50.0), optimizer.init(params), params)
    first_moment = optax.tree_utils.tree_get(state, "mu")
    np.testing.assert_allclose(float(global_norm(first_moment)), 0.5 * 0.1, rtol=1e-5)
