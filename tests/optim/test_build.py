import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from spanloom.optim.build import build, learning_rate
from spanloom.settings.optimizer import WSD, Adafactor, AdamW, AdamWRMS, Constant, Cosine, Factors, Linear, Rsqrt

SCHEDULES = (Rsqrt(), Constant(10), Linear(5, 100), Cosine(5, 100), WSD(5, 100), Factors())


class Spec:
    def __init__(self, shape, axes):
        self.shape, self.axes = shape, axes


@pytest.mark.short
@pytest.mark.parametrize("optimizer", [Adafactor(learning_rate=0.3), AdamW(learning_rate=0.01), AdamWRMS()])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_every_optimizer_goes_downhill_under_every_schedule(optimizer, schedule):
    specs = {"w": Spec((2, 3, 4), ("layers", "embed", "mlp")), "s": Spec((3,), ("embed",))}
    params = {"w": jnp.ones((2, 3, 4)), "s": jnp.ones((3,))}

    def loss(params):
        return sum(jnp.sum((x - 0.5) ** 2) for x in jax.tree.leaves(params))

    built = build(optimizer, schedule, specs)
    state = built.init(params)
    before = float(loss(params))

    @jax.jit
    def step(params, state):
        updates, state = built.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(5):
        params, state = step(params, state)
    assert float(loss(params)) < before


def test_learning_rate_is_the_one_used():
    curve = learning_rate(AdamW(learning_rate=0.25), Constant(warmup_steps=4))
    np.testing.assert_allclose([curve(t) for t in range(6)], [0, 0.0625, 0.125, 0.1875, 0.25, 0.25])
    specs, params = {"s": Spec((3,), ("embed",))}, {"s": jnp.ones(3)}
    built = build(Adafactor(learning_rate=0.25), Constant(warmup_steps=4), specs)
    state = built.init(params)
    for t in range(3):
        updates, state = built.update({"s": jnp.ones(3)}, state, params)
        np.testing.assert_allclose(updates["s"], -float(curve(t)), rtol=1e-5)
