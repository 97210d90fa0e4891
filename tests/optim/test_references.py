"""Each optimizer against plain NumPy in float64, written from the papers, over several steps of one layer."""

import jax
import numpy as np
import pytest
from optimizer_cases import SPECS, made, stepped

from spanloom.optim.averaged import averaged_params
from spanloom.optim.build import build, learning_rate
from spanloom.settings.optimizer import AdamW, AdamWRMS, Constant, Lion, Muon, ScheduleFree

STEPS = 7
WARMUP = Constant(warmup_steps=4)
MATRICES = {"kernel", "table", "bias"}


def run(reference, settings, size=1.0):
    """Parameters after STEPS: ours and the reference's, which is given each step's number from 1, rate and gradient."""
    grads = [made(100 + step, size=size) for step in range(STEPS)]
    rate = learning_rate(settings, WARMUP)
    params, state = stepped(build(settings, WARMUP, SPECS), made(0), grads)
    expected = {name: np.float64(leaf) for name, leaf in made(0).items()}
    memory: dict[str, dict[str, np.ndarray]] = {name: {} for name in expected}
    for step, grad in enumerate(grads):
        grad = clipped({name: np.float64(leaf) for name, leaf in grad.items()}, settings.global_norm_clip)
        for name in expected:
            now = float(rate(step))
            expected[name] = reference(settings, name, step + 1, now, expected[name], grad[name], memory[name])
    return params, state, expected, memory


def clipped(grads, limit):
    norm = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
    return {name: g * min(1.0, limit / norm) for name, g in grads.items()} if limit else grads


def check(params, expected, rtol=2e-5):
    for name, leaf in expected.items():
        np.testing.assert_allclose(params[name], leaf, rtol=rtol, atol=1e-6, err_msg=name)


def decay_of(settings, name):
    return settings.weight_decay if name in MATRICES else 0.0


def adam(settings, step, grad, memory):
    memory["m"] = settings.beta1 * memory.get("m", 0) + (1 - settings.beta1) * grad
    memory["v"] = settings.beta2 * memory.get("v", 0) + (1 - settings.beta2) * grad**2
    mean, square = memory["m"] / (1 - settings.beta1**step), memory["v"] / (1 - settings.beta2**step)
    return mean / (np.sqrt(square) + settings.epsilon)


def adamw(settings, name, step, rate, param, grad, memory):
    return param - rate * (adam(settings, step, grad, memory) + decay_of(settings, name) * param)


def adamw_rms(settings, name, step, rate, param, grad, memory):
    scale = max(settings.min_scale, np.sqrt(np.mean(param**2)))
    return param - rate * (scale * adam(settings, step, grad, memory) + decay_of(settings, name) * param)


def lion(settings, name, step, rate, param, grad, memory):
    momentum = memory.get("m", np.zeros_like(grad))
    direction = np.sign(settings.beta1 * momentum + (1 - settings.beta1) * grad)
    memory["m"] = settings.beta2 * momentum + (1 - settings.beta2) * grad
    return param - rate * (direction + decay_of(settings, name) * param)


def muon(settings, name, step, rate, param, grad, memory):
    if name != "kernel":
        return adamw(settings, name, step, rate, param, grad, memory)
    beta = settings.momentum
    memory["m"] = beta * memory.get("m", 0) + (1 - beta) * grad
    look = memory["m"] / (1 - beta**step)
    if settings.nesterov:  # both terms without the bias of a momentum that began at 0, as NAdam has it
        look = beta * memory["m"] / (1 - beta ** (step + 1)) + (1 - beta) * grad / (1 - beta**step)
    x = look / np.linalg.norm(look)
    for _ in range(settings.newton_schulz_steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    direction = settings.update_rms * np.sqrt(max(param.shape)) * x
    return param - rate * (direction + decay_of(settings, name) * param)


def schedule_free(settings, name, step, rate, param, grad, memory):
    """The paper's three sequences, all of them kept."""
    z, x = memory.get("z", param), memory.get("x", param)
    y = (1 - settings.beta1) * z + settings.beta1 * x
    np.testing.assert_allclose(y, param, rtol=1e-9)
    memory["v"] = settings.beta2 * memory.get("v", 0) + (1 - settings.beta2) * grad**2
    direction = grad / (np.sqrt(memory["v"] / (1 - settings.beta2**step)) + settings.epsilon)
    memory["z"] = z - rate * (direction + decay_of(settings, name) * y)
    memory["highest"] = max(memory.get("highest", 0.0), rate)
    share = memory["highest"] ** settings.weight_power
    memory["total"] = memory.get("total", 0.0) + share
    part = share / memory["total"] if memory["total"] else 1.0
    memory["x"] = (1 - part) * x + part * memory["z"]
    return (1 - settings.beta1) * memory["z"] + settings.beta1 * memory["x"]


CASES = [
    (adamw, AdamW(learning_rate=0.05, weight_decay=0.1)),
    (adamw, AdamW(learning_rate=0.05, beta2=0.95, global_norm_clip=None)),
    (adamw_rms, AdamWRMS(learning_rate=0.05, weight_decay=0.1)),
    (lion, Lion(learning_rate=0.01, weight_decay=0.3)),
    (muon, Muon(learning_rate=0.05, weight_decay=0.1)),
    (muon, Muon(learning_rate=0.05, nesterov=False, update_rms=0.3, newton_schulz_steps=3, global_norm_clip=None)),
    (schedule_free, ScheduleFree(learning_rate=0.05, weight_decay=0.1)),
    (schedule_free, ScheduleFree(learning_rate=0.05, beta1=0.6, weight_power=1.0, global_norm_clip=None)),
]


@pytest.mark.short
@pytest.mark.parametrize(("reference", "settings"), CASES, ids=lambda part: getattr(part, "__name__", ""))
def test_equals_the_reference(reference, settings):
    params, state, expected, memory = run(reference, settings)
    check(params, expected)
    if isinstance(settings, ScheduleFree):
        check(averaged_params(state, params), {name: kept["x"] for name, kept in memory.items()})
        assert np.abs(memory["kernel"]["x"] - expected["kernel"]).max() > 1e-3  # not the same weights
    else:
        assert averaged_params(state, params) is None


@pytest.mark.parametrize(
    ("reference", "settings"), [CASES[3], CASES[4], CASES[6]], ids=["lion", "muon", "schedule_free"]
)
def test_large_gradients_are_clipped_first(reference, settings):
    params, _, expected, _ = run(reference, settings, size=1e4)
    check(params, expected)


def test_muons_steps_are_near_orthogonal_and_as_large_as_adamws():
    settings = Muon(learning_rate=1.0, global_norm_clip=None)
    params, grad = made(0), made(1)
    after, _ = stepped(build(settings, Constant(), SPECS), params, [grad])
    step = np.float64(params["kernel"] - after["kernel"])
    singular = np.linalg.svd(step / (0.2 * np.sqrt(6)), compute_uv=False)
    assert singular.min() > 0.6 and singular.max() < 1.3
    assert 0.6 * 0.2 < np.sqrt(np.mean(step**2)) < 1.3 * 0.2


def test_the_state_has_what_each_needs():
    """Lion one array a weight, Muon one for matrices and two for the rest, schedule-free and AdamW two."""
    sizes = {name: np.prod(spec.shape) for name, spec in SPECS.items()}
    all_, kernel = sum(sizes.values()), sizes["kernel"]
    for settings, floats in (
        (AdamW(), 2 * all_),
        (Lion(), all_),
        (Muon(), kernel + 2 * (all_ - kernel)),
        (ScheduleFree(), 2 * all_),
    ):
        state = build(settings, Constant(), SPECS).init(made(0))
        assert 0 <= sum(leaf.size for leaf in jax.tree.leaves(state)) - floats < 10  # counts and constants
