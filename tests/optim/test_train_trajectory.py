"""T5X's own training, step by step: our model, loss, optimizer and schedule together."""

import json
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from golden_data import golden_dir
from golden_models import read_case, read_npz

from spanloom.conversion.t5x_names import model_settings, to_t5x
from spanloom.model.params import declare, flatten, initialize
from spanloom.optim.adafactor import SLOTS
from spanloom.optim.build import build, learning_rate
from spanloom.optim.clipping import global_norm
from spanloom.settings.optimizer import Adafactor, Factors
from spanloom.settings.run import Loss
from spanloom.training.gradients import make_gradients

FEATURES = ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights")


@dataclass(frozen=True)
class Trajectory:
    history: dict[str, list[float]]
    params: dict[str, np.ndarray]
    slots: dict[str, np.ndarray]


def run_names(folder: Path) -> list[str]:
    return [
        name for name, value in json.loads((folder / "train_trajectory.json").read_text()).items() if _is_run(value)
    ]


def _is_run(value) -> bool:
    return isinstance(value, dict) and "schedule" in value


def train(folder: Path, run: str, *, scan_layers: bool = True, factor_rules: str = "heuristic") -> Trajectory:
    """The run that the JSON describes."""
    facts = json.loads((folder / "train_trajectory.json").read_text())
    arrays = read_npz(folder / "train_trajectory.npz")
    case = read_case((folder / facts["initial_params"]).parent, scan_layers=scan_layers, dropout=facts["dropout"])
    model, params = case.model, jax.tree.map(jax.numpy.asarray, case.params)
    schedule = dict(facts[run]["schedule"])
    optimizer = Adafactor(learning_rate=schedule.pop("base_learning_rate"), factor_rules=factor_rules)
    normalizer = facts[run]["loss_normalizing_factor"]
    loss = Loss(z_loss=facts["z_loss"], normalizer="sum" if normalizer is None else normalizer)
    rate = learning_rate(optimizer, Factors(**schedule))
    transform = build(optimizer, Factors(**schedule), declare(model))

    gradients = make_gradients(model, loss, facts[run]["num_microbatches"] or 1)

    @jax.jit
    def step(params, state, batch, number):
        (total, metrics), grads = gradients(params, batch, None)
        updates, state = transform.update(grads, state, params)
        logged = {
            "loss": total,
            "z_loss": metrics["z_loss_sum"] * total / metrics["loss_sum"],
            "accuracy": metrics["correct_sum"] / metrics["weight_sum"],
            "target_tokens": metrics["weight_sum"],
            "grad_norm": global_norm(grads),
            "learning_rate": rate(number),
        }
        return optax.apply_updates(params, updates), state, logged

    state, history = transform.init(params), {}
    for number in range(facts[run]["steps"]):
        batch = {name: arrays[f"batches/{name}"][number] for name in FEATURES if f"batches/{name}" in arrays}
        params, state, logged = step(params, state, batch, number)
        for name, value in logged.items():
            history.setdefault(name, []).append(float(value))
    slots = {
        f"{name}/{slot}": leaf
        for slot in SLOTS
        for name, leaf in to_t5x(model, getattr(state, slot), scanned=False).items()
    }
    return Trajectory(history, to_t5x(model, flatten(params), scanned=False), slots)


def check_run(folder: Path, run: str, **how) -> None:
    """Compare with the README's tolerances: they widen after 5 steps, as rounding grows along a trajectory."""
    arrays = read_npz(folder / "train_trajectory.npz")
    ours, early = train(folder, run, **how), slice(0, 5)
    rtol = {"loss": (1e-5, 1e-4), "z_loss": (1e-5, 1e-4), "grad_norm": (1e-4, 1e-3), "learning_rate": (5e-6, 5e-6)}
    for name, (first, later) in rtol.items():
        expected = arrays[f"{run}/{name}"]
        np.testing.assert_allclose(ours.history[name][early], expected[early], rtol=first, err_msg=f"{run} {name}")
        np.testing.assert_allclose(ours.history[name], expected, rtol=later, err_msg=f"{run} {name}")
    np.testing.assert_allclose(ours.history["target_tokens"], arrays[f"{run}/target_tokens"], rtol=1e-6)
    np.testing.assert_allclose(ours.history["accuracy"][early], arrays[f"{run}/accuracy"][early], atol=1e-6)
    check_final(arrays, ours, run, json.loads((folder / "train_trajectory.json").read_text())["sample_stride"])


def check_final(arrays: dict[str, np.ndarray], ours: Trajectory, run: str, stride: int) -> None:
    prefix, compared = f"{run}/final_params/", 0
    for key, expected in arrays.items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            got = ours.params[name.removesuffix("@sampled")]
            got = got.reshape(-1)[::stride] if name.endswith("@sampled") else got
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-4, err_msg=key)
            compared += 1
        elif key.startswith(f"{run}/final_slot_norms/"):
            name = key.removeprefix(f"{run}/final_slot_norms/")
            np.testing.assert_allclose(np.linalg.norm(ours.slots[name]), expected, rtol=1e-3, err_msg=key)
    assert compared == len(ours.params)


@pytest.mark.golden
def test_equals_t5x():
    folder = golden_dir("t5x")
    for run in run_names(folder):
        check_run(folder, run)


@pytest.mark.golden
def test_logical_rules_lead_elsewhere():
    """T5X's rules for scanned layers give other slots, so the comparison above would see them mixed up."""
    folder = golden_dir("t5x")
    run = run_names(folder)[0]
    expected = read_npz(folder / "train_trajectory.npz")[f"{run}/loss"]
    got = train(folder, run, factor_rules="logical").history["loss"]
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-5)
    assert not np.allclose(got[5:], expected[5:], rtol=1e-4)


@pytest.mark.golden
def test_a_case_of_its_own_passes_through_the_same_reader(tmp_path):
    """Another model, other batches and another schedule, written in the golden layout from an unrolled training."""
    config = {"vocab_size": 40, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 24, "dropout_rate": 0.0}
    config |= {"num_encoder_layers": 2, "num_decoder_layers": 1, "mlp_activations": ["relu"], "dtype": "float32"}
    folder = tmp_path / "models" / "own"
    folder.mkdir(parents=True)
    described = {"T5Config": config | {"logits_via_embedding": True}, "network": "t5", "tolerances": {}}
    (folder / "config.json").write_text(json.dumps(described))
    model = model_settings(described["T5Config"])
    params = initialize(declare(model), jax.random.key(3))
    np.savez(folder / "params.npz", **to_t5x(model, flatten(params), scanned=False))
    schedule = {"factors": "constant * rsqrt_decay", "base_learning_rate": 0.05, "warmup_steps": 3}
    run = {"num_microbatches": None, "loss_normalizing_factor": 7.0, "schedule": schedule, "steps": 6}
    facts = {"model": "own", "initial_params": "models/own/params.npz", "z_loss": 1e-3, "dropout": 0.0}
    (tmp_path / "train_trajectory.json").write_text(json.dumps(facts | {"mine": run, "sample_stride": 5}))
    rng = np.random.default_rng(0)
    targets = rng.integers(1, 40, (6, 3, 5)).astype(np.int32)
    arrays = {
        "batches/encoder_input_tokens": rng.integers(1, 40, (6, 3, 8)).astype(np.int32),
        "batches/decoder_target_tokens": targets,
        "batches/decoder_input_tokens": np.pad(targets, ((0, 0), (0, 0), (1, 0)))[..., :-1],
    }
    np.savez(tmp_path / "train_trajectory.npz", **arrays)
    made = train(tmp_path, "mine", scan_layers=False)
    arrays |= {f"mine/{name}": np.float32(values) for name, values in made.history.items()}
    arrays |= {f"mine/final_params/{n}@sampled": p.reshape(-1)[::5] for n, p in made.params.items()}
    arrays |= {f"mine/final_slot_norms/{n}": np.linalg.norm(s) for n, s in made.slots.items()}
    np.savez(tmp_path / "train_trajectory.npz", **arrays)
    check_run(tmp_path, "mine")
    arrays["mine/loss"] = arrays["mine/loss"] * np.float32(1 + 2e-5)
    np.savez(tmp_path / "train_trajectory.npz", **arrays)
    with pytest.raises(AssertionError, match="mine loss"):
        check_run(tmp_path, "mine")
