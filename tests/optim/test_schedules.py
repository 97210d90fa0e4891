import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_data import golden_dir

from spanloom.optim.schedules import learning_rate
from spanloom.settings.optimizer import WSD, Constant, Cosine, Factors, Linear, Rsqrt


def from_t5x(arguments: dict, defaults: dict) -> tuple[Factors, float]:
    """Our settings for T5X's arguments."""
    given = defaults | arguments
    base = given.pop("base_learning_rate")
    return Factors(**given), base


def check_folder(folder: Path) -> int:
    """Compare every case of schedules.json; the README's tolerances."""
    facts = json.loads((folder / "schedules.json").read_text())
    steps = jnp.asarray(facts["steps"], jnp.int32)
    for case in facts["cases"]:
        settings, base = from_t5x(case["arguments"], facts["defaults"])
        names = [name.strip() for name in settings.factors.split("*")]
        largest = base if {"constant", "linear_decay"} & set(names) else 1.0
        rates = jax.jit(learning_rate(settings, base))(steps)
        assert rates.dtype == jnp.float32
        np.testing.assert_allclose(
            rates, case["learning_rate"], rtol=5e-6, atol=2e-6 * largest, err_msg=str(case["arguments"])
        )
    for case in facts["errors"]:
        with pytest.raises(ValueError, match="unknown factor"):
            learning_rate(*from_t5x({"factors": case["factors"]}, facts["defaults"]))
    return len(facts["cases"])


@pytest.mark.golden
def test_equals_t5x():
    assert check_folder(golden_dir("t5x")) > 0


@pytest.mark.golden
def test_a_case_of_its_own_passes_through_the_same_reader(tmp_path):
    steps = [0, 3, 10, 39]
    rates = [max(1e-4, 2.0 * min(1, s / 7) * 0.25 ** (s // 4)) for s in steps]
    arguments = {"factors": "constant*linear_warmup * decay_every", "base_learning_rate": 2.0, "warmup_steps": 7}
    defaults = {
        "factors": "constant",
        "base_learning_rate": 0.5,
        "warmup_steps": 1000,
        "decay_factor": 0.25,
        "steps_per_decay": 4,
        "steps_per_cycle": 100000,
        "step_offset": 0,
        "min_learning_rate": 1e-4,
    }
    facts = {
        "defaults": defaults,
        "steps": steps,
        "cases": [{"arguments": arguments, "learning_rate": rates}],
        "errors": [{"factors": "constant * cosine", "error": "ValueError"}],
    }
    (tmp_path / "schedules.json").write_text(json.dumps(facts))
    assert check_folder(tmp_path) == 1
    facts["cases"][0]["learning_rate"][1] *= 1.0001
    (tmp_path / "schedules.json").write_text(json.dumps(facts))
    with pytest.raises(AssertionError):
        check_folder(tmp_path)


@pytest.mark.short
@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ("constant * warmup", "did you mean 'linear_warmup'"),
        ("constant * rsqrt_decai", "did you mean 'rsqrt_decay'"),
        ("constant ** rsqrt_decay", "single '\\*'"),
        ("", "single '\\*'"),
    ],
)
def test_unknown_factors_are_refused_with_the_nearest(factors, said):
    with pytest.raises(ValueError, match=said):
        learning_rate(Factors(factors=factors), 1.0)


@pytest.mark.short
@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Factors(factors="rsqrt_decay", warmup_steps=0), "warmup_steps of at least 1"),
        (Factors(factors="decay_every", steps_per_decay=0), "steps_per_decay of at least 1"),
        (Factors(factors="cosine_decay", steps_per_cycle=0), "steps_per_cycle of at least 1"),
        (Rsqrt(warmup_steps=0), "warmup_steps of at least 1"),
        (Constant(warmup_steps=-1), "0 or more"),
        (Linear(), "decay_steps is unset.*run.resolve"),
        (Cosine(), "decay_steps is unset"),
        (WSD(), "decay_steps is unset"),
        (Cosine(warmup_steps=100, decay_steps=100), "lower warmup_steps"),
        (WSD(decay_steps=100, decay_share=0.0), "decay_share"),
    ],
)
def test_settings_that_make_no_schedule_are_refused(schedule, said):
    with pytest.raises(ValueError, match=said):
        learning_rate(schedule, 1.0)


@pytest.mark.short
@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Rsqrt(warmup_steps=100), {0: 0.1, 100: 0.1, 400: 0.05}),
        (Rsqrt(warmup_steps=100, step_offset=1000), {0: 0.1, 1100: 0.1, 1400: 0.05}),
        (Constant(), {0: 1, 10**6: 1}),
        (Constant(warmup_steps=10), {0: 0, 5: 0.5, 10: 1, 11: 1}),
        (Linear(warmup_steps=10, decay_steps=110), {0: 0, 5: 0.5, 10: 1, 60: 0.5, 110: 0, 200: 0}),
        (Linear(decay_steps=100, end_factor=0.2), {0: 1, 50: 0.6, 100: 0.2, 101: 0.2}),
        (Cosine(warmup_steps=10, decay_steps=110, end_factor=0.1), {10: 1, 60: 0.55, 110: 0.1, 999: 0.1}),
        (Cosine(decay_steps=100), {0: 1, 25: (1 + 0.5**0.5) / 2, 100: 0}),
        (WSD(warmup_steps=10, decay_steps=100), {0: 0, 10: 1, 80: 1, 85: 0.5, 95: 1 - 0.75**0.5, 100: 0}),
        (WSD(decay_steps=100, decay_share=0.5, end_factor=0.1), {50: 1, 100: 0.1}),
    ],
)
def test_schedules_pass_through_known_points(schedule, expected):
    for base in (1.0, 0.003):
        rate = learning_rate(schedule, base)
        got = [float(rate(step)) for step in expected]
        np.testing.assert_allclose(got, [base * v for v in expected.values()], rtol=1e-5, atol=1e-7)


def test_steps_may_be_plain_or_traced_scalars_or_arrays():
    for schedule in (
        Rsqrt(),
        Constant(5),
        Linear(decay_steps=50),
        Cosine(decay_steps=50),
        WSD(decay_steps=50),
        Factors(),
    ):
        rate = learning_rate(schedule, 0.5)
        steps = np.array([0, 7, 49])
        whole = rate(steps)
        assert whole.shape == (3,) and whole.dtype == jnp.float32
        np.testing.assert_allclose(whole, [float(rate(int(s))) for s in steps], rtol=1e-5)
        np.testing.assert_allclose(whole, [float(jax.jit(rate)(s)) for s in steps], rtol=1e-5)
