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
LONG = 40


def beams(alpha: float, most: int = MOST, ngram: int = 0) -> tuple[dict, Generation]:
    """What transformers calls a beam search, and what we do."""
    theirs = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": alpha, "max_new_tokens": most}
    theirs |= {"no_repeat_ngram_size": ngram} if ngram else {}
    ours = Generation(most, outputs=4, beams=4, alpha=alpha, search="transformers", no_repeat_ngram=ngram)
    return theirs, ours


def greedy(most: int = MOST, ngram: int = 0) -> tuple[dict, Generation]:
    theirs = {"max_new_tokens": most, **({"no_repeat_ngram_size": ngram} if ngram else {})}
    return theirs, Generation(most, no_repeat_ngram=ngram)


WAYS = {
    "greedy": greedy(),
    "no repeated bigram": greedy(ngram=2),
    "beams": beams(1.0),
    "beams without penalty": beams(0.0),
    "beams without repeated trigrams": beams(1.0, ngram=3),
}
ENDING = {
    "greedy": greedy(LONG),
    "no repeated bigram": greedy(LONG, ngram=2),
    "beams": beams(1.0, LONG),
    "beams without penalty": beams(0.0, LONG),
    "beams of half a penalty": beams(0.5, LONG),
    "beams of a double penalty": beams(2.0, LONG),
    "beams without repeated bigrams": beams(0.5, LONG, ngram=2),
}
"""Of a model whose sequences end early, at lengths that follow from the penalty."""


def padded_inputs(seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    rows = [[*random.integers(3, 259, length).tolist(), 1] for length in (5, 11, 17, 8)]
    return [row + [0] * (18 - len(row)) for row in rows]


def case(folder: Path, seed: int, ways: dict) -> dict:
    random = np.random.default_rng(seed + 100)
    targets = [[*random.integers(3, 259, length).tolist(), 1] for length in (1, 4, 9, 6)]
    theirs = {name: arguments for name, (arguments, _) in ways.items()}
    return {"folder": str(folder), "inputs": padded_inputs(seed), "targets": targets, "ways": theirs}


def answers_of(work: Path, cases: dict) -> dict:
    """What transformers says to all of them, in one process of its own."""
    (work / "cases.json").write_text(json.dumps(cases))
    script = str(Path(__file__).with_name("hf_generate.py"))
    done = subprocess.run([sys.executable, script, str(work)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((work / "answers.json").read_text())


def test_generate_and_loss_are_those_of_transformers(tmp_path):
    cases = {}
    for seed, (name, model) in enumerate(MODELS.items()):
        convert_to_hf(tiny_source(seed, model), tmp_path / name)
        cases[name] = case(tmp_path / name, seed, WAYS)
    answers = answers_of(tmp_path, cases)
    for name, described in cases.items():
        check(name, described, answers[name], WAYS)
        written = {token for row in answers[name]["ways"]["greedy"]["tokens"] for token in row}
        assert len(written) >= 5, (name, written)


def test_sequences_that_end_early_are_those_of_transformers(tmp_path):
    convert_to_hf(tiny_source(3, end=3.0), tmp_path / "ending")
    cases = {"ending": case(tmp_path / "ending", 5, ENDING)}
    lengths = check("ending", cases["ending"], answers_of(tmp_path, cases)["ending"], ENDING)
    for way in ("greedy", "beams", "beams without penalty", "beams of half a penalty"):
        best = [row[0] for row in lengths[way]]
        assert len(set(best)) >= 3 and sum(length < LONG for length in best) >= 3, (way, best)
    for way in ("beams", "beams without penalty", "beams of half a penalty", "beams without repeated bigrams"):
        assert any(len({length for length in row if length < LONG}) >= 3 for row in lengths[way]), way
    assert lengths["beams"] != lengths["beams without penalty"] != lengths["beams of half a penalty"]


def up_to_end(tokens: list[int]) -> list[int]:
    """Without what follows the end of sequence: transformers fills beams up with more of these where padding is 0.

    Nor with zeros at the end, which are padding or as good as that: such a model may write them.
    """
    return tokens[: tokens.index(1) + 1] if 1 in tokens else np.trim_zeros(np.array(tokens), "b").tolist()


def check(name: str, described: dict, theirs: dict, ways: dict) -> dict[str, list[list[int]]]:
    """The lengths of what is written, end of sequence included, in each way, after it was found to be the same."""
    model = spanloom.load(described["folder"])
    inputs = [[token for token in row if token] for row in described["inputs"]]
    lengths = {}
    for way, (_, settings) in ways.items():
        count, found = settings.beams, theirs["ways"][way]
        ours = model.write([Request(row, settings) for row in inputs])
        lengths[way] = [[len(output.tokens) for output in outputs] for outputs in ours]
        for row, outputs in enumerate(ours):
            assert len(outputs) == count, (name, way)
            for k, output in enumerate(outputs):
                expected = up_to_end(found["tokens"][row * count + k])
                assert output.tokens.tolist() == expected, (name, way)
                if count > 1:
                    assert output.score == pytest.approx(found["scores"][row * count + k], abs=1e-4), (name, way)
    scores = model.score_ids(list(zip(inputs, described["targets"], strict=True)))
    np.testing.assert_allclose([-score.normalized for score in scores], theirs["losses"], atol=1e-4)
    return lengths
