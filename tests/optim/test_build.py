import dataclasses
import math
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import strategies as st

from spanloom.model.sizes import named
from spanloom.optim.build import build, learning_rate
from spanloom.settings.optimizer import (
    FACTOR_PERIODS,
    WSD,
    Adafactor,
    AdamW,
    AdamWRMS,
    Constant,
    Cosine,
    Factors,
    Linear,
    Optimizer,
    Rsqrt,
    Schedule,
)
from spanloom.settings.run import Run
from spanloom.settings.serialize import SettingsError
from spanloom.settings.task import PythonDocs, Task

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


# What passes resolve() can also be built, and its first step is finite.

SPECS = {
    "kernel": Spec((2, 3, 4), ("layers", "embed", "mlp")),
    "table": Spec((5, 3), ("vocab", "embed")),
    "scale": Spec((3,), ("embed",)),
    "heads": Spec((4, 2), ("heads", "relpos_buckets")),
}
PARAMS = {name: jnp.linspace(-1.0, 1.0, math.prod(spec.shape)).reshape(spec.shape) for name, spec in SPECS.items()}
GRADS = {
    name: 1e-2 * jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)).reshape(leaf.shape) for name, leaf in PARAMS.items()
}
PLAIN = Run(name="a", task=Task("docs", PythonDocs()), model=named("byt5_tiny"))


def values_of(hint: Any, *, extreme: bool) -> st.SearchStrategy:
    """Values of a field's type: those that somebody may try, and what no float32 holds where asked for."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if type(None) in get_args(hint):
        inner = next(kind for kind in get_args(hint) if kind is not type(None))
        return st.none() | values_of(inner, extreme=extreme)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(-1 if extreme else 1, 200) | st.sampled_from([10_000, 2**31 - 1 if extreme else 129])
    if hint is float:
        usual = st.sampled_from([1e-30, 1e-8, 1e-3, 0.1, 0.5, 0.8, 0.9, 0.999, 0.9999999]) | st.floats(1e-6, 0.99)
        far = st.sampled_from([-1.0, 0.0, 1.0, 5e-324, 1e-45, 1e-40, 1e38, 1e39, 1e300, 1 - 1e-12])
        return usual | far if extreme else usual
    if hint == tuple[str, ...]:
        return st.sampled_from([("matrices",), ("all", "!scale"), ("*e*",), ()])
    names = st.sampled_from([*FACTOR_PERIODS, *(["", "constnat"] if extreme else [])])
    return st.lists(names, min_size=1, max_size=4).map(" * ".join)


def kinds_of(union: Any, *, extreme: bool) -> st.SearchStrategy:
    def made(cls: type) -> st.SearchStrategy:
        hints = get_type_hints(cls)
        fields = {
            f.name: st.just(f.default) | values_of(hints[f.name], extreme=extreme) for f in dataclasses.fields(cls)
        }
        return st.builds(cls, **fields)

    return st.one_of([made(cls) for cls in get_args(union)])


def resolved(optimizer: Any, schedule: Any, steps: int) -> Run:
    try:
        return replace(PLAIN, optimizer=optimizer, schedule=schedule, steps=steps).resolve()
    except SettingsError:
        hypothesis.reject()


LENIENT = hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))


@pytest.mark.short
@hypothesis.settings(LENIENT, max_examples=300)
@hypothesis.given(
    optimizer=kinds_of(Optimizer, extreme=True), schedule=kinds_of(Schedule, extreme=True), steps=st.integers(0, 300)
)
def test_what_passes_resolve_can_be_built(optimizer, schedule, steps):
    run = resolved(optimizer, schedule, steps)
    build(run.optimizer, run.schedule, SPECS).init(PARAMS)


@hypothesis.settings(LENIENT, max_examples=60)
@hypothesis.given(
    optimizer=kinds_of(Optimizer, extreme=False), schedule=kinds_of(Schedule, extreme=False), steps=st.integers(1, 300)
)
def test_what_passes_resolve_takes_a_finite_step(optimizer, schedule, steps):
    run = resolved(optimizer, schedule, steps)
    built = build(run.optimizer, run.schedule, SPECS)
    updates, state = built.update(GRADS, built.init(PARAMS), PARAMS)
    for leaf in jax.tree.leaves((updates, state)):
        assert np.all(np.isfinite(leaf))
    for step in (0, 1, steps, 2**31 - 1):
        assert np.isfinite(learning_rate(run.optimizer, run.schedule)(step))
