"""A case of our own in the layout of golden/t5x/models, through the very checks that read the golden folders."""

import json
import sys
from pathlib import Path
from typing import Any

import golden_model_checks as checks
import jax
import numpy as np
import pytest
from golden_models import model_settings

from spanloom.conversion.t5x_names import from_t5x, to_t5x
from spanloom.model.params import declare, flatten, initialize, unstack
from spanloom.settings.model import Model

sys.path.insert(0, str(Path(__file__).parent))
import reference_t5 as reference

NORMALIZERS = (None, 50.0, "NUM_REAL_TARGET_TOKENS", "NUM_TOTAL_TARGET_TOKENS", "AVERAGE_PER_SEQUENCE")
TOLERANCES = {
    "logits_atol": 1e-4,
    "encoder_output_atol": 5e-5,
    "loss_rtol": 1e-5,
    "gradient_norm_rtol": 2e-4,
    "gradient_atol_of_largest": 1e-4,
}


def t5_config(tied: bool) -> dict[str, Any]:
    return {
        "vocab_size": 70,
        "emb_dim": 20,
        "num_heads": 3,
        "head_dim": 8,
        "num_encoder_layers": 1,
        "num_decoder_layers": 2,
        "mlp_dim": 28,
        "mlp_activations": ["silu", "linear"] if not tied else ["relu"],
        "logits_via_embedding": tied,
    }


def batches() -> dict[str, dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    inputs = random.integers(2, 70, (3, 9), dtype=np.int32)
    targets = random.integers(2, 70, (3, 6), dtype=np.int32)
    inputs[1, 5:], targets[2, 4:], targets[0, 5:] = 0, 0, 0
    shifted = np.pad(targets[:, :-1], [(0, 0), (1, 0)])
    plain = {"encoder_input_tokens": inputs, "decoder_target_tokens": targets, "decoder_input_tokens": shifted}
    padded = {**plain, "decoder_loss_weights": (targets > 0).astype(np.int32)}
    encoder, decoder = np.repeat([[1, 1, 1, 2, 2, 3, 3, 3, 3]], 3, 0), np.repeat([[1, 1, 2, 2, 3, 3]], 3, 0)
    packed = {
        **padded,
        "encoder_segment_ids": (encoder * (inputs > 0)).astype(np.int32),
        "decoder_segment_ids": (decoder * (targets > 0)).astype(np.int32),
    }
    masked = {**padded, "decoder_loss_weights": padded["decoder_loss_weights"] * np.array([[1], [0], [1]], np.int32)}
    return {"padded": padded, "packed": packed, "masked": masked}


def write_case(folder: Path, network: str, tied: bool) -> None:
    """A folder as T5X's would be, its values from the naive reference."""
    config = t5_config(tied)
    model = model_settings(config, network=network, relative_position_buckets=8, relative_position_max_distance=12)
    stacked = {
        name: np.asarray(leaf) + (0.1 * np.sin(np.arange(leaf.size)).reshape(leaf.shape)).astype(np.float32)
        for name, leaf in flatten(initialize(declare(model), jax.random.key(5))).items()
    }
    scanned = network == "scalable_t5"
    np.savez(folder / "params.npz", **to_t5x(model, stacked, scanned=scanned))
    described = {
        "network": network,
        "T5Config": config,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
        "tolerances": TOLERANCES,
    }
    (folder / "config.json").write_text(json.dumps(described))
    params, arrays = unstack(stacked), {}
    rows: dict[str, list[Any]] = {"losses": [], "gradients": []}
    for name, batch in batches().items():
        arrays.update({f"{name}/{key}": value for key, value in batch.items()})
        computed = outputs(params, model, batch)
        arrays.update({f"{name}/{key}": value for key, value in computed.items()})
        for normalizer in NORMALIZERS:
            for z, smoothing in ((0.0, 0.0), (1e-2, 0.1)):
                rows["losses"].append({"batch": name, **loss_row(computed["logits"], batch, normalizer, z, smoothing)})
        rows["gradients"].append({"batch": name, **gradient_row(params, model, batch, scanned)})
    np.savez(folder / "forward.npz", **arrays)
    (folder / "losses.json").write_text(json.dumps(rows))


def outputs(params: Any, model: Model, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    encoded, logits = jax.jit(reference.forward, static_argnums=1)(params, model, batch)
    targets = batch["decoder_target_tokens"]
    cross_entropy, z_loss = reference.token_losses(logits, targets, 1e-4, 0.0)
    return {
        "encoder_output": np.asarray(encoded),
        "logits": np.asarray(logits),
        "token_cross_entropy": np.asarray(cross_entropy),
        "token_z_loss": np.asarray(z_loss),
        "token_cross_entropy_label_smoothing_0.1": np.asarray(reference.token_losses(logits, targets, 0, 0.1)[0]),
        "token_correct": np.argmax(logits, -1) == targets,
    }


def loss_row(logits: Any, batch: Any, normalizer: Any, z: float, smoothing: float) -> dict[str, Any]:
    cross_entropy, z_loss = reference.token_losses(logits, batch["decoder_target_tokens"], z, smoothing)
    weights, divisor = reference.resolved(normalizer, batch)
    return {
        "loss_normalizing_factor": normalizer,
        "z_loss": z,
        "label_smoothing": smoothing,
        "loss": float(((cross_entropy + z_loss) * weights).sum() / divisor),
        "z_loss_part": float((z_loss * weights).sum() / divisor),
        "weight_sum": float(weights.sum()),
        "resolved_normalizing_factor": float(divisor),
    }


def gradient_row(params: Any, model: Model, batch: Any, scanned: bool) -> dict[str, Any]:
    settings = {"loss_normalizing_factor": "AVERAGE_PER_SEQUENCE", "z_loss": 1e-2, "label_smoothing": 0.1}

    def loss(p: Any) -> Any:
        logits = reference.forward(p, model, batch)[1]
        cross_entropy, z_loss = reference.token_losses(logits, batch["decoder_target_tokens"], 1e-2, 0.1)
        weights, divisor = reference.resolved("AVERAGE_PER_SEQUENCE", batch)
        return ((cross_entropy + z_loss) * weights).sum() / divisor

    gradient = to_t5x(model, from_t5x(jax.jit(jax.grad(loss))(params)), scanned=scanned)
    norms = {name: float(np.linalg.norm(np.ravel(leaf))) for name, leaf in gradient.items()}
    return {**settings, "norms": norms, "global_norm": float(np.sqrt(sum(norm**2 for norm in norms.values())))}


@pytest.mark.parametrize(("network", "tied"), [("t5", True), ("t5", False), ("scalable_t5", False)])
def test_a_case_of_our_own(tmp_path: Path, network: str, tied: bool) -> None:
    write_case(tmp_path, network, tied)
    for scan_layers in (True, False):
        assert checks.check_forward(tmp_path, scan_layers) == 3
        assert checks.check_losses(tmp_path, scan_layers) == 30
        assert checks.check_gradient_norms(tmp_path, scan_layers) == 3


def test_a_wrong_case_is_noticed(tmp_path: Path) -> None:
    write_case(tmp_path, "t5", False)
    with np.load(tmp_path / "params.npz") as stored:
        params = dict(stored)
    params["decoder/layers_1/pre_cross_attention_layer_norm/scale"] += 0.01
    np.savez(tmp_path / "params.npz", **params)
    with pytest.raises(AssertionError):
        checks.check_forward(tmp_path, True)
    with pytest.raises(AssertionError):
        checks.check_losses(tmp_path, True)
