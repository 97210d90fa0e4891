"""What we write and score with a folder that Hugging Face loads is what transformers does with it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_model import TINY, tiny_source

import spanloom
from spanloom.conversion.convert import convert_to_hf
from spanloom.evaluation.writing import Request
from spanloom.settings.generation import Generation

pytestmark = pytest.mark.parity
MODELS = {
    "t5_1_1": TINY,
    "t5_1_0": replace(TINY, activations=("relu",), tie_embeddings=True, name="t5_x"),
    # As many layers on both sides: transformers 5 makes umT5's cache for as many as the encoder has.
    "umt5": replace(TINY, per_layer_position_bias=True, num_encoder_layers=2, num_decoder_layers=2, name="umt5_x"),
}
MOST = 12
LIKE = {"max_length": MOST, "search": "transformers"}
WAYS = {
    "greedy": ({}, Generation(max_length=MOST)),
    "no repeated bigram": ({"no_repeat_ngram_size": 2}, Generation(max_length=MOST, no_repeat_ngram=2)),
    "beams": ({"num_beams": 4}, Generation(beams=4, alpha=1.0, **LIKE)),
    "beams without penalty": ({"num_beams": 4, "length_penalty": 0.0}, Generation(beams=4, alpha=0.0, **LIKE)),
    "beams without repeated trigrams": (
        {"num_beams": 4, "no_repeat_ngram_size": 3},
        Generation(beams=4, alpha=1.0, no_repeat_ngram=3, **LIKE),
    ),
}


def padded_inputs(seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    rows = [[*random.integers(3, 259, length).tolist(), 1] for length in (5, 11, 17, 8)]
    return [row + [0] * (18 - len(row)) for row in rows]


def case(folder: Path, seed: int) -> dict:
    random = np.random.default_rng(seed + 100)
    targets = [[*random.integers(3, 259, length).tolist(), 1] for length in (1, 4, 9, 6)]
    ways = {
        name: {**arguments, "max_new_tokens": MOST, **({"num_return_sequences": 4} if "num_beams" in arguments else {})}
        for name, (arguments, _) in WAYS.items()
    }
    return {"folder": str(folder), "inputs": padded_inputs(seed), "targets": targets, "ways": ways}


def test_generate_and_loss_are_those_of_transformers(tmp_path):
    cases = {}
    for seed, (name, model) in enumerate(MODELS.items()):
        source = tiny_source(seed, model)
        convert_to_hf(source, tmp_path / name)
        cases[name] = case(tmp_path / name, seed)
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    script = str(Path(__file__).with_name("hf_generate.py"))
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads((tmp_path / "answers.json").read_text())
    for name, described in cases.items():
        check(name, described, answers[name])


def check(name: str, described: dict, theirs: dict) -> None:
    model = spanloom.load(described["folder"])
    inputs = [[token for token in row if token] for row in described["inputs"]]
    for way, (_, settings) in WAYS.items():
        count = settings.beams
        requests = [Request(row, replace(settings, outputs=count)) for row in inputs]
        ours, found = model.write(requests), theirs["ways"][way]
        for row, outputs in enumerate(ours):
            for k, output in enumerate(outputs):
                expected = np.trim_zeros(np.array(found["tokens"][row * count + k]), "b")
                np.testing.assert_array_equal(np.trim_zeros(output.tokens, "b"), expected, err_msg=f"{name}, {way}")
                if count > 1:
                    assert output.score == pytest.approx(found["scores"][row * count + k], abs=1e-4), (name, way)
    scores = model.score_ids(list(zip(inputs, described["targets"], strict=True)))
    np.testing.assert_allclose([-score.normalized for score in scores], theirs["losses"], atol=1e-4)
