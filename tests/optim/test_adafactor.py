import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from golden_data import ROOT, golden_dir

from spanloom.optim import schedules
from spanloom.optim.adafactor import SLOTS, AdafactorState, adafactor
from spanloom.optim.factoring import STANDARD_RULES
from spanloom.settings.optimizer import Adafactor, Factors

GOLDEN = Path(os.environ.get("SPANLOOM_GOLDEN", ROOT.parent / "shared" / "golden"))
ARGUMENTS = {  # T5X's constructor arguments that have another name here
    "weight_decay_rate": "weight_decay",
    "weight_decay_rate_lr_exponent": "weight_decay_lr_exponent",
    "global_norm_clip_threshold": "global_norm_clip",
}


@dataclass(frozen=True)
class Spec:
    shape: tuple[int, ...]
    axes: tuple[str, ...]


# --- reading T5X's reference values ---------------------------------------------------------------------------------


class Golden:
    """One folder's adafactor.json and adafactor.npz."""

    def __init__(self, folder: Path):
        self.facts = json.loads((folder / "adafactor.json").read_text())
        self.arrays = np.load(folder / "adafactor.npz")

    def settings(self, option: str) -> Adafactor:
        facts = self.facts["options"][option]
        arguments = {ARGUMENTS.get(k, k): v for k, v in facts["constructor_arguments"].items()}
        return Adafactor(factor_rules="logical" if facts["logical_factor_rules"] else "heuristic", **arguments)

    def specs(self, option: str) -> dict[str, Spec]:
        """Declarations; where T5X was given no rules it did not know the axes, so that they have no names here."""
        facts = self.facts["options"][option]
        shapes = {name: self.facts["shapes"][name] for name in facts["parameters"]}
        named = bool(facts["logical_factor_rules"])
        return {
            name: Spec(tuple(s["shape"]), tuple(s["logical_axes"]) if named else ("unnamed",) * len(s["shape"]))
            for name, s in shapes.items()
        }

    def rules(self, option: str) -> dict:
        rules = self.facts["options"][option]["logical_factor_rules"]
        return rules if isinstance(rules, dict) else self.facts["standard_logical_factor_rules"]

    def rates(self, option: str) -> tuple[jax.Array, int]:
        facts = self.facts["options"][option]
        return jnp.asarray(facts["learning_rate"], jnp.float32), facts["start_step"]

    def gradients(self, option: str, step: int) -> dict[str, np.ndarray]:
        facts = self.facts["options"][option]
        found = {name: self.arrays[f"gradients/{name}"][step].copy() for name in facts["parameters"]}
        note = facts.get("note", "")
        for name, at, where in re.findall(r"gradient of (\S+) at .*?\(index (\d+)\) has NaN at \[([\d, ]+)\]", note):
            if int(at) == step:
                found[name][tuple(int(i) for i in where.split(","))] = np.nan
        assert ("NaN" not in note) or re.search(r"has NaN at", note), f"unread note: {note}"
        return found

    def initial_state(self, option: str, state: AdafactorState, start: int) -> AdafactorState:
        def given(slot: str, name: str, zeros: jax.Array) -> jax.Array:
            key = f"{option}/initial_slots/{name}/{slot}"
            return jnp.asarray(self.arrays[key]) if key in self.arrays else zeros

        slots = {slot: {n: given(slot, n, x) for n, x in getattr(state, slot).items()} for slot in SLOTS}
        return AdafactorState(count=jnp.int32(start), **slots)

    def check(self, key: str, step: int, ours: jax.Array, *, absolute: float) -> None:
        """Compare our array after a step with whatever of it is kept under the key."""
        ours, arrays = np.asarray(ours), self.arrays
        if key in arrays:
            pairs = [(ours, arrays[key][step], arrays[key])]
        else:
            sampled = arrays[f"{key}@sampled"]
            pairs = [(ours.reshape(-1)[:: self.facts["sample_stride"]], sampled[step], sampled)]
            if f"{key}@last" in arrays and step == self.facts["steps"] - 1:
                pairs.append((ours, arrays[f"{key}@last"], arrays[f"{key}@last"]))
        for got, expected, whole in pairs:
            largest = np.nanmax(np.abs(whole))
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=absolute * largest, err_msg=f"{key} step {step}")


def check_option(golden: Golden, option: str) -> None:
    """Run our Adafactor over the option's gradients, compare parameters and slots after every step."""
    specs = golden.specs(option)
    rates, start = golden.rates(option)
    optimizer = adafactor(golden.settings(option), lambda t: rates[t - start], specs, golden.rules(option))
    params = {name: jnp.asarray(golden.arrays[f"initial/{name}"]) for name in specs}
    state = optimizer.init(params)
    kept = {n: {s: list(getattr(state, s)[n].shape) for s in SLOTS if n in getattr(state, s)} for n in specs}
    assert kept == golden.facts["options"][option]["slots"]
    state = golden.initial_state(option, state, start)
    update = jax.jit(optimizer.update)
    for step in range(golden.facts["steps"]):
        updates, state = update(golden.gradients(option, step), state, params)
        params = optax.apply_updates(params, updates)
        for name in specs:
            golden.check(f"{option}/params/{name}", step, params[name], absolute=1e-7)
            for slot in kept[name]:
                golden.check(f"{option}/{slot}/{name}", step, getattr(state, slot)[name], absolute=0)


def pytest_generate_tests(metafunc):
    """One test for each option of the golden file at hand; one, which skips or fails, where there is none."""
    if "golden_option" in metafunc.fixturenames:
        file = GOLDEN / "t5x" / "adafactor.json"
        options = json.loads(file.read_text())["options"] if file.exists() else ["absent"]
        metafunc.parametrize("golden_option", list(options))


@pytest.mark.golden
def test_equals_t5x(golden_option):
    check_option(Golden(golden_dir("t5x")), golden_option)


@pytest.mark.golden
def test_golden_learning_rates_are_those_of_the_schedule():
    golden = Golden(golden_dir("t5x"))
    given = dict(golden.facts["schedule"])
    curve = schedules.learning_rate(Factors(**{k: v for k, v in given.items() if k != "base_learning_rate"}), 0.5)
    for option, facts in golden.facts["options"].items():
        steps = facts["start_step"] + np.arange(golden.facts["steps"])
        np.testing.assert_allclose(curve(steps), facts["learning_rate"], rtol=5e-6, atol=1e-6, err_msg=option)


# --- an independent reference: plain loops over layers in float64 ------------------------------------------------


def reference_step(o: Adafactor, t: int, lr: float, p, g, slots):
    """One step for one layer (no layers axis), rank at most 2, size heuristic; float64."""
    b2 = 1 - (t - o.step_offset + 1) ** -o.decay_rate
    sq = g * g + o.epsilon1
    if "v_row" in slots:
        small = 0 if p.shape[0] <= p.shape[1] else 1
        slots["v_row"] = b2 * slots["v_row"] + (1 - b2) * sq.mean(1 - small)
        slots["v_col"] = b2 * slots["v_col"] + (1 - b2) * sq.mean(small)
        row, col = slots["v_row"] / slots["v_row"].mean(), slots["v_col"]
        v = np.outer(row, col) if small == 0 else np.outer(col, row)
    else:
        v = slots["v"] = b2 * slots["v"] + (1 - b2) * sq
    y = g / np.sqrt(v)
    if o.clipping_threshold is not None:
        y = y / max(1.0, np.sqrt((y * y).mean()) / o.clipping_threshold)
    scale = lr
    if o.multiply_by_parameter_scale:
        scale = lr * min(max(np.sqrt((p * p).mean()), o.epsilon2), o.max_parameter_scale or np.inf)
    u = scale * y
    if o.beta1 is not None:
        u = slots["m"] = o.beta1 * slots["m"] + (1 - o.beta1) * u
    decay = o.weight_decay or 0.0
    if o.weight_decay_lr_exponent:
        decay = (o.weight_decay or 1.0) * lr**o.weight_decay_lr_exponent
    return p * (1 - decay) - u


def reference_slots(o: Adafactor, shape):
    slots = {"m": np.zeros(shape)} if o.beta1 is not None else {}
    if o.factored and len(shape) == 2 and min(shape) >= o.min_dim_size_to_factor:
        return slots | {"v_row": np.zeros(min(shape)), "v_col": np.zeros(max(shape))}
    return slots | {"v": np.zeros(shape)}


def make_gradients(rng, shapes, steps):
    return {n: rng.normal(size=(steps, *s)).astype(np.float32) * 0.1 for n, s in shapes.items()}


@pytest.mark.golden
def test_a_case_of_its_own_passes_through_the_same_reader(tmp_path):
    """A folder of the golden layout with other shapes, options and steps, written from the loops above."""
    rng = np.random.default_rng(5)
    shapes = {"deep/kernel": (130, 150), "bias": (7,), "lone": (), "narrow/kernel": (150, 9)}
    axes = {"deep/kernel": ["embed", "mlp"], "bias": ["embed"], "lone": [], "narrow/kernel": ["mlp", "heads"]}
    o = Adafactor(decay_rate=0.7, beta1=0.8, weight_decay=0.02, min_dim_size_to_factor=9)
    rates, start, stride = [0.1, 0.2, 0.05], 3, 11
    gradients = {n: np.abs(g) for n, g in make_gradients(rng, shapes, 3).items()}  # no cancelling in the momentum
    arrays = {f"gradients/{n}": g for n, g in gradients.items()}
    slots_facts = {}
    for name, shape in shapes.items():
        p = arrays[f"initial/{name}"] = np.asarray(rng.normal(size=shape), np.float32)
        slots = {k: np.abs(rng.normal(size=v.shape)) + 0.01 for k, v in reference_slots(o, shape).items()}
        slots_facts[name] = {k: list(v.shape) for k, v in slots.items()}
        arrays |= {f"mine/initial_slots/{name}/{k}": v.astype(np.float32) for k, v in slots.items()}
        history = []
        for step in range(3):
            p = reference_step(o, start + step, rates[step], np.float64(p), np.float64(gradients[name][step]), slots)
            history.append({"params": p} | dict(slots))
        for kind in history[0]:
            whole = np.stack([h[kind] for h in history]).astype(np.float32)
            if name == "deep/kernel":
                arrays[f"mine/{kind}/{name}@sampled"] = whole.reshape(3, -1)[:, ::stride]
                arrays[f"mine/{kind}/{name}@last"] = whole[-1]
            else:
                arrays[f"mine/{kind}/{name}"] = whole
    np.savez(tmp_path / "adafactor.npz", **arrays)
    option = {
        "constructor_arguments": {
            "decay_rate": 0.7,
            "beta1": 0.8,
            "weight_decay_rate": 0.02,
            "min_dim_size_to_factor": 9,
        },
        "logical_factor_rules": "standard",
        "start_step": start,
        "learning_rate": rates,
        "parameters": list(shapes),
        "slots": slots_facts,
    }
    facts = {
        "shapes": {n: {"shape": list(s), "logical_axes": axes[n]} for n, s in shapes.items()},
        "steps": 3,
        "sample_stride": stride,
        "standard_logical_factor_rules": dict(STANDARD_RULES),
        "options": {"mine": option},
    }
    (tmp_path / "adafactor.json").write_text(json.dumps(facts))
    check_option(Golden(tmp_path), "mine")
    arrays["mine/params/bias"] = arrays["mine/params/bias"] * np.float32(1.0002)
    np.savez(tmp_path / "adafactor.npz", **arrays)
    with pytest.raises(AssertionError, match="mine/params/bias"):
        check_option(Golden(tmp_path), "mine")


# --- stacked layers -------------------------------------------------------------------------------------------------

VARIANTS = [
    Adafactor(min_dim_size_to_factor=8),
    Adafactor(min_dim_size_to_factor=8, beta1=0.9, weight_decay=0.01),
    Adafactor(factored=False, beta1=0.9, global_norm_clip=0.5),
    Adafactor(min_dim_size_to_factor=8, clipping_threshold=None, weight_decay_lr_exponent=2.0),
    Adafactor(min_dim_size_to_factor=8, multiply_by_parameter_scale=False, decay_rate=0.5),
    Adafactor(min_dim_size_to_factor=8, max_parameter_scale=0.2, epsilon2=0.05, epsilon1=1e-8),
]


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_stacked_parameter_moves_as_its_layers_do_alone(settings, position):
    """Whatever the position of the layers axis, and whichever side is the larger."""
    rng, layers = np.random.default_rng(0), 3
    shapes = {"wide": (8, 12), "tall": (12, 8), "square": (8, 8), "thin": (12, 4), "scale": (12,)}
    place = {name: min(position, len(shape)) for name, shape in shapes.items()}
    size = 4.0 ** -np.arange(layers)
    alone = {
        f"{name}_{i}": (rng.normal(size=s) * size[i]).astype(np.float32) for name, s in shapes.items() for i in range(3)
    }
    alone_specs = {n: Spec(p.shape, ("embed", "mlp")[: p.ndim]) for n, p in alone.items()}

    def stack(tree):
        return {n: jnp.stack([tree[f"{n}_{i}"] for i in range(layers)], place[n]) for n in shapes}

    stacked = stack(alone)
    stacked_specs = {
        n: Spec(stacked[n].shape, tuple(np.insert(np.array(["embed", "mlp"][: len(s)], "U8"), place[n], "layers")))
        for n, s in shapes.items()
    }
    one = adafactor(settings, lambda t: 0.1 / (t + 1), alone_specs)
    many = adafactor(settings, lambda t: 0.1 / (t + 1), stacked_specs)
    state_one, state_many = one.init(alone), many.init(stacked)
    for _ in range(4):
        grads = {n: (rng.normal(size=p.shape) * 8.0 ** int(n[-1])).astype(np.float32) for n, p in alone.items()}
        u_one, state_one = jax.jit(one.update)(grads, state_one, alone)
        u_many, state_many = jax.jit(many.update)(stack(grads), state_many, stacked)
        alone, stacked = optax.apply_updates(alone, u_one), optax.apply_updates(stacked, u_many)
        for name, expected in stack(alone).items():
            np.testing.assert_allclose(stacked[name], expected, rtol=2e-5, atol=1e-7, err_msg=name)
    for name in shapes:
        slots = [slot for slot in SLOTS if name in getattr(state_many, slot)]
        assert slots == [slot for slot in SLOTS if f"{name}_0" in getattr(state_one, slot)]
        for slot in slots:
            whole = np.asarray(getattr(state_many, slot)[name])
            per_layer = [np.asarray(getattr(state_one, slot)[f"{name}_{i}"]) for i in range(layers)]
            assert whole.size == sum(x.size for x in per_layer)
            largest = np.abs(whole).max() if slot == "m" else 0  # signed: sums that cancel have no relative accuracy
            np.testing.assert_allclose(
                np.sort(whole.ravel()), np.sort(np.stack(per_layer).ravel()), rtol=2e-5, atol=1e-7 * largest
            )


# --- odds and ends --------------------------------------------------------------------------------------------------


SMALL = {"a": (8, 12), "b": (12, 8), "c": (5,), "d": ()}
BIG = {"a": (32, 8192), "b": (8192, 32), "c": (262144,), "d": (512, 600)}


@pytest.mark.short
@pytest.mark.parametrize("shapes", [SMALL, BIG], ids=["small", "large"])
@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_equals_a_float64_reference(shapes, factored, clip):
    rng = np.random.default_rng(1)
    o = Adafactor(
        min_dim_size_to_factor=8, beta1=0.9, weight_decay=0.5, weight_decay_lr_exponent=2.0, factored=factored
    )
    gradients = make_gradients(rng, shapes, 5)
    gradients["a"][2] = 0
    params = {n: jnp.asarray(rng.normal(size=s), jnp.float32) for n, s in shapes.items()}
    expected = {n: np.float64(p) for n, p in params.items()}
    slots = {n: reference_slots(o, s) for n, s in shapes.items()}
    specs = {n: Spec(s, ("embed", "mlp")[: len(s)]) for n, s in shapes.items()}
    optimizer = adafactor(replace(o, global_norm_clip=clip), lambda t: 0.1, specs)
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for t in range(5):
        grads = {n: g[t] for n, g in gradients.items()}
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
        norm = np.sqrt(sum(np.sum(np.square(g, dtype=np.float64)) for g in grads.values()))
        scale = min(1.0, clip / norm) if clip else 1.0
        for n in shapes:
            expected[n] = reference_step(o, t, 0.1, expected[n], np.float64(grads[n]) * scale, slots[n])
            np.testing.assert_allclose(params[n], expected[n], rtol=2e-5, atol=1e-6)


@pytest.mark.short
def test_state_holds_only_the_slots_in_use():
    specs = {"w": Spec((2, 130, 140), ("layers", "embed", "mlp")), "s": Spec((2, 130), ("layers", "embed"))}
    params = {name: jnp.zeros(spec.shape) for name, spec in specs.items()}
    state = adafactor(Adafactor(), lambda t: 1.0, specs).init(params)
    assert {k: v.shape for k, v in state.v_row.items()} == {"w": (2, 130)}
    assert {k: v.shape for k, v in state.v_col.items()} == {"w": (2, 140)}
    assert {k: v.shape for k, v in state.v.items()} == {"s": (2, 130)}
    assert not state.m
    assert state.count.dtype == jnp.int32
    with_momentum = adafactor(Adafactor(beta1=0.9), lambda t: 1.0, specs).init(params)
    assert {k: v.shape for k, v in with_momentum.m.items()} == {"w": (2, 130, 140), "s": (2, 130)}


def test_a_nan_gradient_leaves_its_layer_alone_when_asked():
    spec = {"w": Spec((2, 16, 16), ("layers", "embed", "mlp"))}
    params = {"w": jnp.ones((2, 16, 16))}
    grads = {"w": jnp.ones((2, 16, 16)).at[1, 2, 3].set(jnp.nan)}
    for skip in (True, False):
        optimizer = adafactor(Adafactor(skip_nan_updates=skip), lambda t: 0.1, spec)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        assert np.all(np.asarray(updates["w"][0]) != 0)
        assert np.all(np.asarray(updates["w"][1]) == 0) if skip else np.any(np.isnan(updates["w"][1]))


def test_large_gradients_are_clipped_to_the_global_norm():
    """Without factoring and clipping by RMS the first step is +-rate whatever the norm; moments show the clip."""
    spec = {"a": Spec((3,), ("embed",)), "b": Spec((2,), ("embed",))}
    grads = {"a": jnp.full((3,), 30.0), "b": jnp.full((2,), -40.0)}
    optimizer = adafactor(Adafactor(global_norm_clip=1.0), lambda t: 0.1, spec)
    params = jax.tree.map(jnp.ones_like, grads)
    _, state = optimizer.update(grads, optimizer.init(params), params)
    assert np.isclose(float(state.v["a"].sum() + state.v["b"].sum()), 1.0, rtol=1e-5)


def test_steps_before_the_offset_count_as_the_offset():
    spec, params = {"a": Spec((3,), ("embed",))}, {"a": jnp.ones((3,))}
    optimizer = adafactor(Adafactor(step_offset=1000), lambda t: 0.1, spec)
    updates, _ = optimizer.update({"a": jnp.ones((3,))}, optimizer.init(params), params)
    assert np.all(np.isfinite(updates["a"]))


def test_updates_need_parameters():
    spec, params = {"a": Spec((3,), ("embed",))}, {"a": jnp.ones((3,))}
    optimizer = adafactor(Adafactor(), lambda t: 0.1, spec)
    with pytest.raises(ValueError, match="update\\(grads, state, params\\)"):
        optimizer.update(params, optimizer.init(params))


def test_logical_and_heuristic_rules_differ_for_stacked_layers():
    """A layer below the size limit: T5X's scanned form factors it all the same, the unscanned form does not."""
    spec = {"w": Spec((16, 2, 24), ("embed", "layers", "mlp"))}
    params = {"w": jnp.ones((16, 2, 24))}
    scanned = adafactor(replace(Adafactor(), factor_rules="logical"), lambda t: 0.1, spec).init(params)
    unscanned = adafactor(Adafactor(), lambda t: 0.1, spec).init(params)
    assert scanned.v_row["w"].shape == (16, 2) and scanned.v_col["w"].shape == (2, 24) and not scanned.v
    assert unscanned.v["w"].shape == (16, 2, 24) and not unscanned.v_row
