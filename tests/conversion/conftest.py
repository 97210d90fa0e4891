"""Small random models, sources and folders for the conversion tests."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_data import absent

from spanloom.conversion.trained_model import Lineage, TrainedModel
from spanloom.model.params import T5, declare, flatten, unflatten
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes, Vocabulary

SUBJECT = Path(__file__).with_name("hf_subject.py")


def random_params(model: Model, seed: int = 0) -> T5:
    """Weights that leave no mistake unseen: norm scales away from 1, position tables that matter."""
    rng = np.random.default_rng(seed)
    flat = {}
    for name, spec in flatten(declare(model)).items():
        if name.endswith("scale"):
            array = rng.uniform(0.5, 1.5, spec.shape)
        elif name.endswith("rel_embedding"):
            array = rng.normal(0, 0.8, spec.shape)
        elif name.endswith("embedding"):
            array = rng.normal(0, 1, spec.shape)
        else:
            array = rng.normal(0, spec.shape[-2] ** -0.5, spec.shape)
            if name.endswith("query/kernel"):
                array *= 0.5
        flat[name] = array.astype(np.float32)
    return unflatten(model, flat)


def random_batch(model: Model, seed: int = 0, inputs: int = 150, targets: int = 20) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    encoder = rng.integers(3, model.vocab_size, (3, inputs)).astype(np.int32)
    decoder = rng.integers(3, model.vocab_size, (3, targets)).astype(np.int32)
    encoder[1, inputs // 2 :] = 0
    decoder[2, targets // 2 :] = 0
    return {
        "encoder_input_tokens": encoder,
        "decoder_target_tokens": decoder,
        "decoder_input_tokens": np.pad(decoder, ((0, 0), (1, 0)))[:, :-1],
    }


@pytest.fixture
def tiny() -> Model:
    return Model(vocab_size=384, d_model=16, d_ff=24, num_heads=2, d_kv=4, num_encoder_layers=2, num_decoder_layers=1)


@pytest.fixture
def make_source() -> Callable[..., TrainedModel]:
    def make(model: Model, vocabulary: Vocabulary | None = None, seed: int = 0) -> TrainedModel:
        return TrainedModel(model, random_params(model, seed), vocabulary or Bytes(), Lineage(origin="runs/a"))

    return make


@pytest.fixture(scope="session")
def hugging_face() -> Callable[[Path, dict[str, Any], dict[str, dict[str, np.ndarray]]], tuple[Any, Any]]:
    """A function (work, cases, batches) -> (report, logits and what was written by case) that runs transformers in a
    process of its own; `more` goes into its environment.

    SPANLOOM_HF_PYTHON names the Python whose transformers is used; the tests' own, else.
    """
    python = os.environ.get("SPANLOOM_HF_PYTHON", sys.executable)
    found = subprocess.run(
        [python, "-c", "import torch, transformers"], capture_output=True, text=True, timeout=300, check=False
    )
    if found.returncode:
        absent(f"{python} has no torch and transformers (the parity extra)")

    def run(
        work: Path, cases: dict[str, Any], batches: dict[str, dict[str, np.ndarray]], **more: str
    ) -> tuple[Any, Any]:
        for name, batch in batches.items():
            np.savez(work / f"{name}.npz", **batch)
            cases[name]["batch"] = True
        (work / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
        done = subprocess.run(
            [python, str(SUBJECT), str(work)],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found = {name: dict(np.load(work / f"{name}-result.npz")) for name in batches}
        return json.loads((work / "report.json").read_text(encoding="utf-8")), found

    return run
