"""What must hold for a folder of golden/t5x/models, one function each, so that a case made by a test meets the same checks."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from golden_models import Case, loss_settings, read_case, read_npz

from spanloom.conversion.t5x_names import to_t5x
from spanloom.model.loss import loss_and_metrics, loss_from_hidden, token_losses
from spanloom.model.params import T5, flatten
from spanloom.model.t5 import encode, forward, hidden_states
from spanloom.settings.model import Model
from spanloom.settings.run import Loss


def check_forward(folder: Path, scan_layers: bool) -> int:
    case, compared = read_case(folder, scan_layers=scan_layers), 0
    for name, batch in case.batches().items():
        if f"{name}/encoder_output" in case.arrays:
            segments = batch.get("encoder_segment_ids")
            run = jax.jit(lambda p, x, s: encode(p, case.model, x, encoder_segment_ids=s))
            output = run(case.params, batch["encoder_input_tokens"], segments)
            real = batch["encoder_input_tokens"] > 0
            atol = case.tolerances["encoder_output_atol"]
            np.testing.assert_allclose(output[real], case.arrays[f"{name}/encoder_output"][real], rtol=0, atol=atol)
            compared += 1
        if f"{name}/logits" in case.arrays:
            logits = jax.jit(lambda p, b: forward(p, case.model, b))(case.params, batch)
            real = batch["decoder_target_tokens"] > 0
            atol = case.tolerances["logits_atol"]
            np.testing.assert_allclose(logits[real], case.arrays[f"{name}/logits"][real], rtol=0, atol=atol)
            check_token_losses(case, name, batch)
            compared += 1
    return compared


def check_token_losses(case: Case, name: str, batch: dict[str, np.ndarray]) -> None:
    real, atol = batch["decoder_target_tokens"] > 0, case.tolerances["logits_atol"]
    plain = token_losses(case.params, case.model, Loss(z_loss=1e-4), batch)
    smooth = token_losses(case.params, case.model, Loss(z_loss=0.0, label_smoothing=0.1), batch)
    for key, ours in (
        ("token_cross_entropy", plain.cross_entropy),
        ("token_z_loss", plain.z_loss),
        ("token_correct", plain.correct),
        ("token_cross_entropy_label_smoothing_0.1", smooth.cross_entropy),
    ):
        if f"{name}/{key}" in case.arrays:
            theirs = case.arrays[f"{name}/{key}"].astype(np.float32)
            np.testing.assert_allclose(np.asarray(ours)[real], theirs[real], rtol=0, atol=atol, err_msg=key)


def check_losses(folder: Path, scan_layers: bool) -> int:
    case = read_case(folder, scan_layers=scan_layers)
    rows = json.loads((folder / "losses.json").read_text())["losses"]
    batches = case.batches()
    hidden = {name: _hidden(case.params, case.model, batch) for name, batch in batches.items()}
    for row in rows:
        name, settings = row["batch"], loss_settings(row)
        loss, metrics = _loss_from_hidden(case.params, case.model, settings, hidden[name], batches[name])
        check_loss_row(row, float(loss), {k: float(v) for k, v in metrics.items()}, case, batches[name])
    return len(rows)


def check_loss_row(row: dict[str, Any], loss: float, m: dict[str, float], case: Case, batch: dict[str, Any]) -> None:
    rtol = case.tolerances["loss_rtol"]
    np.testing.assert_allclose(loss, row["loss"], rtol=rtol, err_msg=str(row))
    if row["loss_normalizing_factor"] == "AVERAGE_PER_SEQUENCE":
        np.testing.assert_allclose(m["num_sequences"], row["resolved_normalizing_factor"], atol=1e-6)
        return  # the reference's other sums are taken with normalised weights here
    np.testing.assert_allclose(m["weight_sum"], row["weight_sum"], atol=1e-6)
    divisor = row["resolved_normalizing_factor"] or 1
    np.testing.assert_allclose(m["loss_sum"] / divisor, row["loss"], rtol=rtol)
    np.testing.assert_allclose(m["z_loss_sum"] / divisor, row["z_loss_part"], rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(m["cross_entropy_sum"] + m["z_loss_sum"], m["loss_sum"], rtol=1e-6)
    if "accuracy" in row:
        np.testing.assert_allclose(m["correct_sum"] / m["weight_sum"], row["accuracy"], atol=1e-6)
        per_token = loss / m["weight_sum"]
        np.testing.assert_allclose(per_token, row["loss_per_nonpadding_target_token"], rtol=rtol)
        per_all = loss / batch["decoder_target_tokens"].size
        np.testing.assert_allclose(per_all, row["loss_per_all_target_tokens"], rtol=rtol)


# The many settings of the loss share one compiled body: compiling it anew for each would take minutes. That the two
# parts joined by hand equal the gradient of the whole is what check_full_gradients sees.
_hidden = jax.jit(hidden_states, static_argnums=1)
_loss_from_hidden = jax.jit(loss_from_hidden, static_argnums=(1, 2))
_head_gradient = jax.jit(jax.grad(loss_from_hidden, argnums=(0, 3), has_aux=True), static_argnums=(1, 2))


@partial(jax.jit, static_argnums=1)
def _body_gradient(params: T5, model: Model, batch: dict[str, Any], hidden_gradient: jax.Array) -> T5:
    return jax.vjp(lambda p: hidden_states(p, model, batch), params)[1](hidden_gradient)[0]


def gradients_in_parts(case: Case, settings: Loss, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    hidden = _hidden(case.params, case.model, batch)
    (of_head, of_hidden), _ = _head_gradient(case.params, case.model, settings, hidden, batch)
    of_body = _body_gradient(case.params, case.model, batch, of_hidden)
    return named_as_stored(case, jax.tree.map(jnp.add, of_head, of_body))


def gradients(case: Case, settings: Loss, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    grad = jax.jit(jax.grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))
    return named_as_stored(case, grad(case.params, case.model, settings, batch)[0])


def named_as_stored(case: Case, tree: T5) -> dict[str, np.ndarray]:
    """Under T5X's names, in the layout of the folder."""
    return to_t5x(case.model, flatten(tree), scanned=case.scanned)


def check_gradient_norms(folder: Path, scan_layers: bool) -> int:
    case = read_case(folder, scan_layers=scan_layers)
    rows = json.loads((folder / "losses.json").read_text())["gradients"]
    batches = case.batches()
    for row in rows:
        ours = gradients_in_parts(case, loss_settings(row), batches[row["batch"]])
        assert ours.keys() == row["norms"].keys()
        norms = {name: float(np.linalg.norm(leaf.ravel())) for name, leaf in ours.items()}
        rtol = case.tolerances["gradient_norm_rtol"]
        total = float(np.sqrt(sum(norm**2 for norm in norms.values())))
        np.testing.assert_allclose(total, row["global_norm"], rtol=rtol, err_msg=str(row["batch"]))
        for name, norm in row["norms"].items():
            np.testing.assert_allclose(norms[name], norm, rtol=rtol, atol=1e-12, err_msg=name)
    return len(rows)


def check_full_gradients(folder: Path, scan_layers: bool) -> int:
    """Batch `packed`, summed loss, no label smoothing, z-loss 1e-4, as the README says."""
    case = read_case(folder, scan_layers=scan_layers)
    theirs = read_npz(folder / "gradients.npz")
    ours = gradients(case, Loss(z_loss=1e-4, normalizer="sum"), case.batches()["packed"])
    assert ours.keys() == theirs.keys()
    for name, gradient in theirs.items():
        atol = case.tolerances["gradient_atol_of_largest"] * np.abs(gradient).max()
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=atol, err_msg=name)
    return len(theirs)


def check_bfloat16(folder: Path, scan_layers: bool) -> int:
    """No further from the float32 logits than 1.5 times the reference's own bfloat16, and the loss within 5e-3."""
    case = read_case(folder, scan_layers=scan_layers, dtype="bfloat16")
    theirs = read_npz(folder / "forward_bfloat16.npz")
    names = {key.split("/")[0] for key in theirs}
    for name in names:
        batch = case.batches()[name]
        real = batch["decoder_target_tokens"] > 0
        exact = case.arrays[f"{name}/logits"][real]
        logits = np.asarray(jax.jit(lambda p, b: forward(p, case.model, b))(case.params, batch))[real]
        reference = np.abs(theirs[f"{name}/logits"].astype(np.float32)[real] - exact).mean()
        assert np.abs(logits - exact).mean() <= 1.5 * reference
        loss, _ = loss_and_metrics(case.params, case.model, Loss(z_loss=1e-4, normalizer="sum"), batch)
        assert loss.dtype == jnp.float32
        np.testing.assert_allclose(loss, theirs[f"{name}/loss"], rtol=5e-3)
    return len(names)
