import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimizer_cases import SPECS, made, stepped

from spanloom.optim.build import build
from spanloom.optim.rounding import as_kept, nearest, rounded, stochastic
from spanloom.settings.optimizer import Adafactor, AdamW, Constant
from spanloom.settings.weights import Weights

STOCHASTIC, KAHAN = Weights("bfloat16", "stochastic"), Weights("bfloat16", "kahan")
SMALL = 2.0**-14
"""A step far below 2^-9, half of what parts 1 from the next bfloat16."""


def plus(weights: Weights, steps: int, seed: int = 0, size: int = 4096, start: float = 1.0):
    """`size` weights of `start` after so many additions of SMALL, and the state."""
    optimizer = rounded(optax.sgd(SMALL), weights, seed)
    params = {"w": jnp.full(size, start, jnp.bfloat16)}

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update({"w": -jnp.ones(size)}, state, params)
        return (optax.apply_updates(params, updates), state), None

    run = jax.jit(lambda params: jax.lax.scan(step, (params, optimizer.init(params)), length=steps)[0])
    params, state = run(params)
    return np.float64(params["w"]), state


@pytest.mark.short
def test_many_small_steps_add_up():
    """4096 steps of 2^-14 make 0.25; rounded to the nearest they make nothing."""
    steps, exact = 4096, 1.25
    plain = jnp.full((), 1.0, jnp.bfloat16)
    for _ in range(8):
        plain = (plain.astype(jnp.float32) + SMALL).astype(jnp.bfloat16)
    assert float(plain) == 1.0
    lost = exact - 1.0
    kahan, state = plus(KAHAN, steps)
    remainder = np.float64(state.lost["w"])
    assert np.abs(kahan - exact).max() <= 2**-8  # the nearest bfloat16
    assert np.abs(kahan + remainder - exact).max() < lost / 1000
    by_chance, _ = plus(STOCHASTIC, steps)
    assert abs(by_chance.mean() - exact) < lost / 100
    assert 0.04 < by_chance.std() < 0.05  # each weight is a walk of its own, of about sqrt(0.25 * 2^-7)


@pytest.mark.short
@pytest.mark.parametrize("value", [1.0 + SMALL, -3.3, 1e-3, -7.1e-20, 65_000.1, 2.0**-120 * 1.001, 0.0, 1.5])
def test_stochastic_rounding_is_unbiased_and_takes_a_neighbour(value):
    draws = 200_000
    x = jnp.full(draws, value, jnp.float32)
    got = np.float64(stochastic(x, jax.random.key(5)))
    exact = float(x[0])
    below, above = got.min(), got.max()
    assert len(set(got)) <= 2 and below <= exact <= above
    assert np.array_equal(got, np.float64(jnp.asarray(got, jnp.float32).astype(jnp.bfloat16)))
    gap = above - below
    assert abs(got.mean() - exact) <= 2.5 * gap / np.sqrt(draws)  # five standard deviations; no gap: it is exact


def test_what_is_not_finite_or_out_of_range_stays_so():
    x = jnp.array([jnp.inf, -jnp.inf, jnp.nan, jnp.uint32(0x7FFFFFFF).view(jnp.float32), 3.4e38], jnp.float32)
    got = np.asarray(stochastic(x, jax.random.key(0)))
    assert np.array_equal(np.isnan(got), [False, False, True, True, False])
    assert got[0] == np.inf and got[1] == -np.inf and got[4] > 3.3e38


def test_nearest_is_that_of_a_cast():
    x = made(0)["kernel"] * 100
    assert np.array_equal(jax.jit(nearest)(x), np.float32(x.astype(jnp.bfloat16)))


def test_chance_is_keyed_by_seed_step_and_name():
    first, again, other = (plus(STOCHASTIC, 64, seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert len(set(first)) > 1  # and by the place in the array
    params = {"a": jnp.ones(512, jnp.bfloat16), "b": jnp.ones(512, jnp.bfloat16)}
    optimizer = rounded(optax.sgd(2.0**-9), STOCHASTIC, 0)
    state, ends = optimizer.init(params), []
    for _ in range(2):
        updates, state = optimizer.update(jax.tree.map(jnp.ones_like, params), state, params)
        ends.append(updates)
    assert not np.array_equal(ends[0]["a"], ends[0]["b"]) and not np.array_equal(ends[0]["a"], ends[1]["a"])


@pytest.mark.parametrize("weights", [STOCHASTIC, KAHAN], ids=lambda w: w.rounding)
@pytest.mark.parametrize(
    "settings", [AdamW(learning_rate=1e-3), Adafactor(learning_rate=1e-2)], ids=["adamw", "adafactor"]
)
def test_follows_float32_weights(settings, weights):
    """Same gradients, 40 small steps: weights within a few bfloat16 steps, moments float32 and the same."""
    grads = [made(step, size=0.1) for step in range(40)]
    start = as_kept(made(0), weights)
    low, state = stepped(build(settings, Constant(), SPECS, weights), start, grads)
    exact = {name: leaf.astype(jnp.float32) for name, leaf in start.items()}
    high, plain = stepped(build(settings, Constant(), SPECS), exact, grads)
    for name in SPECS:
        assert low[name].dtype == jnp.bfloat16
        np.testing.assert_allclose(np.float32(low[name]), high[name], rtol=2**-5, atol=1e-2)
    for ours, theirs in zip(jax.tree.leaves(state.inner), jax.tree.leaves(plain), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("weights", [STOCHASTIC, KAHAN], ids=lambda w: w.rounding)
def test_an_update_added_to_its_weight_is_the_rounded_weight(weights):
    """Bit for bit, so that what averages or measures updates sees what happened."""
    optimizer = build(AdamW(learning_rate=0.3), Constant(), SPECS, weights)
    params = as_kept(made(0), weights)
    updates, _ = jax.jit(optimizer.update)(made(1), optimizer.init(params), params)
    for name, leaf in optax.apply_updates(params, updates).items():
        assert leaf.dtype == jnp.bfloat16
        assert np.array_equal(np.float32(leaf), np.float32(params[name]) + np.asarray(updates[name]))


def test_kept_in_half_the_memory():
    def size(tree):
        return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))

    exact = made(0)
    assert size(as_kept(exact, STOCHASTIC)) == size(exact) / 2 and size(as_kept(exact, Weights())) == size(exact)
    plain = build(AdamW(), Constant(), SPECS).init(exact)
    for weights, more in ((STOCHASTIC, 4), (KAHAN, 4 + size(exact) / 2)):
        state = build(AdamW(), Constant(), SPECS, weights).init(as_kept(exact, weights))
        assert size(state) == size(plain) + more
