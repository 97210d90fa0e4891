"""What must hold for a folder of golden/t5x/models, one function each: a case made by a test meets the same checks."""

import json
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from golden_models import Case, loss_settings, read_case, read_npz

from spanloom.conversion.t5x_names import to_t5x
from spanloom.model.loss import (
    TokenLosses,
    head_loss,
    loss_and_metrics,
    loss_from_hidden,
    loss_weights,
    weights_per_sequence,
)
from spanloom.model.params import T5, flatten
from spanloom.model.t5 import encode, head_logits, hidden_states
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

Batch = dict[str, np.ndarray]


class Outputs(NamedTuple):
    encoded: jax.Array
    hidden: jax.Array
    logits: jax.Array
    gradient: T5


# One compiled body serves every check and every setting of the loss, or compiling would take minutes; it is compiled
# without optimisation for the same reason. The whole loss and its gradient, compiled as in training, are in
# check_full_gradients.
@partial(jax.jit, static_argnums=1, compiler_options={"xla_backend_optimization_level": 0})
def _body(params: T5, model: Model, batch: Batch, hidden_gradient: jax.Array) -> Outputs:
    segments = batch.get("encoder_segment_ids")
    encoded = encode(params, model, batch["encoder_input_tokens"], encoder_segment_ids=segments)
    hidden, pull = jax.vjp(lambda p: hidden_states(p, model, batch), params)
    return Outputs(encoded, hidden, head_logits(params, model, hidden), pull(hidden_gradient)[0])


_head_gradient = jax.grad(loss_from_hidden, argnums=(0, 3), has_aux=True)  # not compiled: one op at a time is faster


def outputs(case: Case, batch: Batch, hidden_gradient: jax.Array | None = None) -> Outputs:
    features = {name: array for name, array in batch.items() if not name.endswith("_positions")}
    if hidden_gradient is None:
        hidden_gradient = jnp.zeros((*batch["decoder_target_tokens"].shape, case.model.d_model), case.model.dtype)
    return _body(case.params, case.model, features, hidden_gradient)


def check_forward(folder: Path, scan_layers: bool) -> int:
    case, compared = read_case(folder, scan_layers=scan_layers), 0
    for name, batch in case.batches().items():
        if f"{name}/logits" not in case.arrays:
            continue
        ours = outputs(case, batch)
        real, atol = batch["encoder_input_tokens"] > 0, case.tolerances["encoder_output_atol"]
        compare(ours.encoded, case.arrays[f"{name}/encoder_output"], real, atol, "encoder_output")
        real, atol = batch["decoder_target_tokens"] > 0, case.tolerances["logits_atol"]
        compare(ours.logits, case.arrays[f"{name}/logits"], real, atol, "logits")
        check_token_losses(case, name, ours.hidden)
        compared += 1
    return compared


def check_token_losses(case: Case, name: str, hidden: jax.Array) -> None:
    batch = case.batches()[name]
    targets = batch["decoder_target_tokens"]
    weights = jnp.ones(targets.shape, jnp.float32)

    def losses(settings: Loss) -> TokenLosses:
        return head_loss(case.params, case.model, settings, hidden, targets, weights)[1]

    plain, smooth = losses(Loss(z_loss=1e-4)), losses(Loss(z_loss=0.0, label_smoothing=0.1))
    for key, ours in (
        ("token_cross_entropy", plain.cross_entropy),
        ("token_z_loss", plain.z_loss),
        ("token_correct", plain.correct),
        ("token_cross_entropy_label_smoothing_0.1", smooth.cross_entropy),
    ):
        theirs = case.arrays[f"{name}/{key}"].astype(np.float32)
        compare(ours, theirs, targets > 0, case.tolerances["logits_atol"], key)


def compare(ours: Any, theirs: np.ndarray, where: np.ndarray, atol: float, name: str) -> None:
    np.testing.assert_allclose(np.asarray(ours)[where], theirs[where], rtol=0, atol=atol, err_msg=name)


def check_losses(folder: Path, scan_layers: bool) -> int:
    case = read_case(folder, scan_layers=scan_layers)
    rows = json.loads((folder / "losses.json").read_text())["losses"]
    batches = case.batches()
    hidden = {name: outputs(case, batch).hidden for name, batch in batches.items()}
    for row in rows:
        name, settings = row["batch"], loss_settings(row)
        loss, metrics = loss_from_hidden(case.params, case.model, settings, hidden[name], batches[name])
        check_loss_row(row, float(loss), {k: float(v) for k, v in metrics.items()}, case, batches[name])
    return len(rows)


def check_loss_row(row: dict[str, Any], loss: float, m: dict[str, float], case: Case, batch: Batch) -> None:
    rtol = case.tolerances["loss_rtol"]
    np.testing.assert_allclose(loss, row["loss"], rtol=rtol, err_msg=str(row))
    if row["loss_normalizing_factor"] == "AVERAGE_PER_SEQUENCE":
        # The count is a whole number; what the loss is divided by is the float32 sum that the reference records.
        per_sequence = weights_per_sequence(batch, loss_weights(batch))
        np.testing.assert_allclose(jnp.sum(per_sequence), row["resolved_normalizing_factor"], atol=1e-6)
        assert m["num_sequences"] == round(row["resolved_normalizing_factor"])
        theirs = case.arrays.get(f"{row['batch']}/resolved_weights/AVERAGE_PER_SEQUENCE")
        if theirs is not None:
            np.testing.assert_allclose(per_sequence, theirs, atol=1e-6)
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


def check_gradient_norms(folder: Path, scan_layers: bool) -> int:
    case = read_case(folder, scan_layers=scan_layers)
    rows = json.loads((folder / "losses.json").read_text())["gradients"]
    batches = case.batches()
    hidden = {name: outputs(case, batch).hidden for name, batch in batches.items()}
    for row in rows:
        name, settings = row["batch"], loss_settings(row)
        (of_head, of_hidden), _ = _head_gradient(case.params, case.model, settings, hidden[name], batches[name])
        of_body = outputs(case, batches[name], of_hidden).gradient
        compare_norms(row, named_as_stored(case, jax.tree.map(jnp.add, of_head, of_body)), case)
    return len(rows)


def compare_norms(row: dict[str, Any], ours: dict[str, np.ndarray], case: Case) -> None:
    assert ours.keys() == row["norms"].keys()
    norms = {name: float(np.linalg.norm(leaf.ravel())) for name, leaf in ours.items()}
    rtol = case.tolerances["gradient_norm_rtol"]
    total = float(np.sqrt(sum(norm**2 for norm in norms.values())))
    np.testing.assert_allclose(total, row["global_norm"], rtol=rtol, err_msg=str(row["batch"]))
    for name, norm in row["norms"].items():
        np.testing.assert_allclose(norms[name], norm, rtol=rtol, atol=1e-12, err_msg=name)


def named_as_stored(case: Case, tree: T5) -> dict[str, np.ndarray]:
    """Under T5X's names, in the layout of the folder."""
    return to_t5x(case.model, flatten(tree), scanned=case.scanned)


def check_full_gradients(folder: Path, scan_layers: bool) -> int:
    """Batch `packed`, summed loss, no label smoothing, z-loss 1e-4, as the README says."""
    case = read_case(folder, scan_layers=scan_layers)
    theirs = read_npz(folder / "gradients.npz")
    grad = jax.jit(jax.grad(loss_and_metrics, has_aux=True), static_argnums=(1, 2))
    tree, _ = grad(case.params, case.model, Loss(z_loss=1e-4, normalizer="sum"), case.batches()["packed"])
    ours = named_as_stored(case, tree)
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
        ours = outputs(case, batch)
        assert ours.hidden.dtype == jnp.bfloat16 and ours.logits.dtype == jnp.float32
        reference = np.abs(theirs[f"{name}/logits"].astype(np.float32)[real] - exact).mean()
        assert np.abs(np.asarray(ours.logits)[real] - exact).mean() <= 1.5 * reference
        settings = Loss(z_loss=1e-4, normalizer="sum")
        loss, _ = loss_from_hidden(case.params, case.model, settings, ours.hidden, batch)
        assert loss.dtype == jnp.float32
        np.testing.assert_allclose(loss, theirs[f"{name}/loss"], rtol=5e-3)
    return len(names)
