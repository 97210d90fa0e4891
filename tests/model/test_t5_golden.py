"""T5X's own logits, losses and gradients, for every folder in golden/t5x/models, scanned and unrolled."""

from pathlib import Path

import golden_model_checks
import pytest
from golden_data import golden_dir

pytestmark = pytest.mark.golden
FORMS = pytest.mark.parametrize("scan_layers", [True, False], ids=["scanned", "unrolled"])


def folders_with(file: str) -> list[Path]:
    return sorted(path.parent for path in golden_dir("t5x", "models").glob(f"*/{file}"))


@FORMS
def test_logits_encoder_output_and_token_losses(scan_layers: bool) -> None:
    assert sum(golden_model_checks.check_forward(folder, scan_layers) for folder in folders_with("forward.npz")) > 0


@FORMS
def test_losses_under_every_normalizer(scan_layers: bool) -> None:
    assert sum(golden_model_checks.check_losses(folder, scan_layers) for folder in folders_with("losses.json")) > 0


@FORMS
def test_gradient_norms(scan_layers: bool) -> None:
    assert (
        sum(golden_model_checks.check_gradient_norms(folder, scan_layers) for folder in folders_with("losses.json")) > 0
    )


@FORMS
def test_full_gradients(scan_layers: bool) -> None:
    assert (
        sum(golden_model_checks.check_full_gradients(folder, scan_layers) for folder in folders_with("gradients.npz"))
        > 0
    )


@FORMS
def test_bfloat16(scan_layers: bool) -> None:
    assert (
        sum(golden_model_checks.check_bfloat16(folder, scan_layers) for folder in folders_with("forward_bfloat16.npz"))
        > 0
    )
