import jax
import jax.numpy as jnp
import numpy as np
from optimizer_cases import SPECS, made, stepped

from spanloom.optim.averaged import averaged_params
from spanloom.optim.build import build
from spanloom.settings.optimizer import AdamW, Constant, Muon
from spanloom.settings.weights import Weights

SETTINGS = AdamW(learning_rate=0.1)


def trajectory(decay: float, steps: int, weights: Weights | None = None):
    """The weights after each step, and the last state."""
    optimizer = build(SETTINGS, Constant(), SPECS, weights or Weights(ema_decay=decay))
    params, state, seen = made(0), None, []
    params = {name: leaf.astype((weights or Weights()).dtype) for name, leaf in params.items()}
    for step in range(steps):
        params, state = stepped(optimizer, params, [made(50 + step)], state)
        seen.append(params)
    return seen, state


def test_is_the_debiased_moving_average_of_the_weights_after_each_step():
    seen, state = trajectory(0.8, 6)
    average = averaged_params(state, seen[-1])
    shares = np.array([0.2 * 0.8 ** (5 - step) for step in range(6)]) / (1 - 0.8**6)
    np.testing.assert_allclose(shares.sum(), 1.0)
    for name in SPECS:
        expected = sum(share * np.float64(params[name]) for share, params in zip(shares, seen, strict=True))
        np.testing.assert_allclose(average[name], expected, rtol=1e-5, atol=1e-6)


def test_random_weights_leave_no_trace():
    for decay in (0.0, 0.5, 0.9999):
        seen, state = trajectory(decay, 1)
        for name, leaf in averaged_params(state, seen[0]).items():
            np.testing.assert_allclose(leaf, seen[0][name], rtol=1e-5)


def test_before_the_first_step_it_is_the_weights():
    params = made(0)
    state = build(SETTINGS, Constant(), SPECS, Weights(ema_decay=0.9)).init(params)
    assert all(np.array_equal(leaf, params[name]) for name, leaf in averaged_params(state, params).items())


def test_training_goes_on_as_without():
    seen, _ = trajectory(0.9, 5)
    plain, state = stepped(build(SETTINGS, Constant(), SPECS), made(0), [made(50 + step) for step in range(5)])
    assert all(np.array_equal(plain[name], seen[-1][name]) for name in SPECS)
    assert averaged_params(state, plain) is None


def test_is_float32_of_bfloat16_weights():
    seen, state = trajectory(0.5, 3, Weights("bfloat16", "stochastic", 0.5))
    average = jax.jit(averaged_params)(state, seen[-1])
    shares = np.array([0.25, 0.5, 1.0]) / 1.75
    for name, leaf in average.items():
        assert leaf.dtype == jnp.float32 and seen[-1][name].dtype == jnp.bfloat16
        expected = sum(share * np.float64(params[name]) for share, params in zip(shares, seen, strict=True))
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-6)


def test_a_late_average_goes_on_moving():
    """1 - decay^step must not fall to where float32 makes steps of 0."""
    optimizer = build(Muon(), Constant(), SPECS, Weights(ema_decay=0.999))
    params = made(0)
    state = optimizer.init(params)
    late = jax.tree.map(lambda leaf: jnp.full_like(leaf, 2_000_000) if leaf.dtype == jnp.int32 else leaf, state)
    _, after = optimizer.update(made(1), late, {name: leaf + 1 for name, leaf in params.items()})
    moved = averaged_params(after, params)["kernel"] - params["kernel"]
    np.testing.assert_allclose(moved, 1e-3, rtol=0.02)
