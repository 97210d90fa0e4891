"""Every case of golden/t5x/decode.json: greedy, beams and scores as T5X has them."""

import json
from pathlib import Path

import numpy as np
import pytest
from golden_data import golden_dir
from golden_models import Case, read_case, read_npz

from spanloom.model.decoding import forced_tokens, get_ready
from spanloom.model.decoding_beams import Beams, beam_search
from spanloom.model.decoding_rules import Rules
from spanloom.model.scoring import token_log_probs

pytestmark = pytest.mark.golden
SCORES = 2e-4  # the README's
TIE = 1e-4


@pytest.fixture(scope="module")
def golden():
    folder = golden_dir("t5x")
    facts = json.loads((folder / "decode.json").read_text())
    return facts, read_npz(folder / "decode.npz"), read_case(golden_dir("t5x", "models", "decoder_fixture"))


def beams_of(case: Case, facts: dict, arrays: dict, described: dict, length: int) -> Beams:
    inputs, forced = arrays["encoder_input_tokens"], None
    if described["prompt_with_targets"]:
        forced = np.pad(arrays["prompt/decoder_input_tokens"], ((0, 0), (0, 1)))[:, 1 : length + 1]
        forced = np.where(forced == facts["eos_id"], 0, forced)
    rules = Rules(forced_tokens(forced, len(inputs), length))
    limit = np.full(len(inputs), length)
    arguments = {"count": described["num_decodes"], "alpha_B": described["arguments"]["alpha"]}
    return beam_search(
        get_ready(case.params, case.model), case.model, inputs, rules, limit, eos_id=facts["eos_id"], **arguments
    )


def check_beams(name: str, described: dict, ours: Beams, arrays: dict) -> None:
    """Beams, best first; where two tie, either may come first."""
    tokens, scores = arrays[f"{name}/decodes"][:, ::-1], arrays[f"{name}/scores"][:, ::-1]
    real = scores > -1e6
    np.testing.assert_array_equal(np.asarray(ours.scores) > -1e6, real, err_msg=name)
    np.testing.assert_allclose(np.where(real, ours.scores, 0), np.where(real, scores, 0), atol=SCORES, err_msg=name)
    ties = set(described["examples_with_scores_closer_than_1e-4"])
    for row in range(len(tokens)):
        mine, theirs = np.asarray(ours.tokens)[row][real[row]], tokens[row][real[row]]
        if row in ties:
            mine, theirs = (np.array(sorted(map(list, x))) for x in (mine, theirs))
        np.testing.assert_array_equal(mine, theirs, err_msg=f"{name}, example {row}")
    free = f"{name}/teacher_forced_log_prob_free"
    summed = arrays[free if free in arrays else f"{name}/teacher_forced_log_prob"][:, ::-1]
    for row in set(range(len(tokens))) - ties:
        np.testing.assert_allclose(
            np.asarray(ours.log_probs)[row][real[row]], summed[row][real[row]], atol=SCORES, err_msg=name
        )


def test_every_beam_search_equals_t5x(golden):
    facts, arrays, case = golden
    searches = {name: one for name, one in facts["cases"].items() if one["decode_fn"] == "beam_search"}
    assert searches
    for name, described in searches.items():
        length = arrays[f"{name}/decodes"].shape[-1]
        check_beams(name, described, beams_of(case, facts, arrays, described, length), arrays)


def test_scores_equal_score_batch(golden):
    _, arrays, case = golden
    batch = {name: arrays[name] for name in ("encoder_input_tokens", "decoder_target_tokens", "decoder_input_tokens")}
    log_probs = np.asarray(token_log_probs(case.params, case.model, batch))
    np.testing.assert_allclose(log_probs.sum(1), arrays["score_batch/scores"], atol=SCORES)
    masked = arrays["score_batch_first_token_masked/scores"]
    np.testing.assert_allclose(log_probs[:, 1:].sum(1), masked, atol=SCORES)


def test_several_targets_of_an_input_are_scored_in_one_row(golden):
    _, arrays, case = golden
    candidates = arrays["rank/candidates"]
    rows, count, length = candidates.shape
    shifted = np.pad(candidates, ((0, 0), (0, 0), (1, 0)))[..., :-1]
    segments = np.where(candidates > 0, np.arange(1, count + 1)[None, :, None], 0)
    batch = {
        "encoder_input_tokens": arrays["encoder_input_tokens"],
        "decoder_target_tokens": candidates.reshape(rows, -1),
        "decoder_input_tokens": shifted.reshape(rows, -1),
        "decoder_segment_ids": segments.reshape(rows, -1).astype(np.int32),
    }
    log_probs = np.asarray(token_log_probs(case.params, case.model, batch)).reshape(rows, count, length)
    np.testing.assert_allclose(log_probs.sum(-1), arrays["rank/scores"], atol=SCORES)


def test_wrong_beams_would_be_seen(tmp_path: Path):
    described = {"examples_with_scores_closer_than_1e-4": []}
    tokens, scores = np.array([[[5, 1], [6, 1]]], np.int32), np.array([[-0.5, -0.7]], np.float32)
    arrays = {"mine/decodes": tokens[:, ::-1], "mine/scores": scores[:, ::-1]}
    arrays["mine/teacher_forced_log_prob"] = scores[:, ::-1]
    check_beams("mine", described, Beams(tokens, scores, scores), arrays)
    with pytest.raises(AssertionError, match="mine"):
        check_beams("mine", described, Beams(tokens[:, ::-1], scores, scores), arrays)
    with pytest.raises(AssertionError, match="mine"):
        check_beams("mine", described, Beams(tokens, scores - 1e-3, scores), arrays)
