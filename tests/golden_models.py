"""Reading the folders golden/t5x/models/*, for tests; golden/t5x/README.md describes them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from spanloom.conversion.t5x_names import from_t5x, is_scanned, model_settings
from spanloom.model.params import T5, unflatten
from spanloom.settings.model import Model
from spanloom.settings.run import Loss

NORMALIZERS = {
    None: "sum",
    "NUM_REAL_TARGET_TOKENS": "real_tokens",
    "NUM_TOTAL_TARGET_TOKENS": "all_tokens",
    "AVERAGE_PER_SEQUENCE": "sequences",
}
FEATURES = (
    "encoder_input_tokens",
    "decoder_target_tokens",
    "decoder_input_tokens",
    "decoder_loss_weights",
    "encoder_segment_ids",
    "decoder_segment_ids",
    "encoder_positions",
    "decoder_positions",
)


@dataclass(frozen=True)
class Case:
    folder: Path
    model: Model
    params: T5
    tolerances: dict[str, float]
    arrays: dict[str, np.ndarray]
    scanned: bool
    """Whether the folder's parameters are in the scanned layout."""

    def batches(self) -> dict[str, dict[str, np.ndarray]]:
        found: dict[str, dict[str, np.ndarray]] = {}
        for key, value in self.arrays.items():
            batch, name = key.split("/", 1)
            if name in FEATURES:
                found.setdefault(batch, {})[name] = value
        return found


def read_case(folder: Path, **overrides: Any) -> Case:
    described = json.loads((folder / "config.json").read_text())
    model = model_settings(
        described["T5Config"],
        network=described["network"],
        relative_position_buckets=described.get("relative_attention_num_buckets", 32),
        relative_position_max_distance=described.get("relative_attention_max_distance", 128),
        norm_epsilon=described.get("layer_norm_epsilon", 1e-6),
        **overrides,
    )
    stored = read_npz(folder / "params.npz")
    params = unflatten(model, from_t5x(stored))
    arrays = read_npz(folder / "forward.npz") if (folder / "forward.npz").exists() else {}
    return Case(folder, model, params, described["tolerances"], arrays, is_scanned(stored))


def read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return dict(stored)


def loss_settings(row: dict[str, Any]) -> Loss:
    factor = row["loss_normalizing_factor"]
    normalizer = NORMALIZERS[factor] if factor is None or isinstance(factor, str) else factor
    return Loss(z_loss=row["z_loss"], label_smoothing=row["label_smoothing"], normalizer=normalizer)
