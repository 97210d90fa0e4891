import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_data import golden_dir
from golden_models import Case, read_case, read_npz

from spanloom.conversion.t5x_names import model_settings, to_t5x
from spanloom.model import decoding
from spanloom.model.decoding import Decoded, advance, greedy
from spanloom.model.params import declare, flatten, initialize
from spanloom.model.t5 import forward
from spanloom.settings.model import Model

TINY = Model(vocab_size=24, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=2, num_decoder_layers=3)
FORMS = {
    "t5_1_1": {},
    "t5_1_0": {"activations": ("relu",), "tie_embeddings": True},
    "umt5": {"per_layer_position_bias": True},
    "unrolled": {"scan_layers": False},
    "unrolled_umt5": {"scan_layers": False, "per_layer_position_bias": True},
}


def is_greedy(case: dict) -> bool:
    arguments = case["arguments"]
    return case["decode_fn"] == "temperature_sample" and (
        arguments.get("topk") == 1 or arguments.get("temperature") == 0
    )


def teacher_forced(case: Case, inputs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Log-probability of each token, (B, T), 0 at padding."""
    batch = {
        "encoder_input_tokens": inputs,
        "decoder_target_tokens": tokens,
        "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
    }
    log_probs = jax.nn.log_softmax(forward(case.params, case.model, batch))
    chosen = jnp.take_along_axis(log_probs, tokens[..., None], axis=-1)[..., 0]
    return np.asarray(chosen * (tokens > 0))


def check_folder(folder: Path, model_folder: Path, scan_layers: bool) -> int:
    """Every greedy case of decode.json: tokens equal, log-probabilities within the README's 2e-4."""
    facts, arrays = json.loads((folder / "decode.json").read_text()), read_npz(folder / "decode.npz")
    case, compared = read_case(model_folder, scan_layers=scan_layers), 0
    inputs = arrays["encoder_input_tokens"]
    for name, described in facts["cases"].items():
        if not is_greedy(described):
            continue
        expected, forced = arrays[f"{name}/decodes"][:, 0], None
        if described["prompt_with_targets"]:
            prompt = arrays["prompt/decoder_input_tokens"]
            forced = np.pad(prompt, ((0, 0), (0, 1)))[:, 1 : expected.shape[1] + 1]
            forced = np.where(forced == facts["eos_id"], 0, forced)
        ours = greedy(
            case.params, case.model, inputs, expected.shape[1], forced_tokens_BxT=forced, eos_id=facts["eos_id"]
        )
        np.testing.assert_array_equal(ours.tokens, expected, err_msg=name)
        free = f"{name}/teacher_forced_log_prob_free"
        scores = arrays[free if free in arrays else f"{name}/teacher_forced_log_prob"][:, 0]
        np.testing.assert_allclose(ours.log_probs, scores, rtol=0, atol=2e-4, err_msg=name)
        compared += 1
    return compared


@pytest.mark.golden
@pytest.mark.parametrize("scan_layers", [True, False])
def test_equals_t5x(scan_layers):
    folder = golden_dir("t5x")
    assert check_folder(folder, golden_dir("t5x", "models", "decoder_fixture"), scan_layers) > 0


@pytest.mark.golden
def test_a_case_of_its_own_passes_through_the_same_reader(tmp_path):
    config = {"vocab_size": 24, "emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 24, "dropout_rate": 0.0}
    config |= {"num_encoder_layers": 1, "num_decoder_layers": 2, "mlp_activations": ["gelu", "linear"]}
    described = {"T5Config": config | {"logits_via_embedding": False}, "network": "t5", "tolerances": {}}
    (tmp_path / "config.json").write_text(json.dumps(described))
    model = model_settings(described["T5Config"])
    params = initialize(declare(model), jax.random.key(1))
    np.savez(tmp_path / "params.npz", **to_t5x(model, flatten(params), scanned=False))
    inputs = np.random.default_rng(0).integers(2, 24, (3, 7)).astype(np.int32)
    tokens, log_probs = slow_greedy(Case(tmp_path, model, params, {}, {}, False), inputs, 5)
    facts = {"decode_fn": "temperature_sample", "arguments": {"topk": 1}, "prompt_with_targets": False}
    (tmp_path / "decode.json").write_text(json.dumps({"eos_id": 1, "cases": {"mine": facts}}))
    arrays = {"encoder_input_tokens": inputs, "mine/decodes": tokens[:, None]}
    arrays["mine/teacher_forced_log_prob"] = log_probs[:, None]
    np.savez(tmp_path / "decode.npz", **arrays)
    assert check_folder(tmp_path, tmp_path, True) == 1
    arrays["mine/decodes"] = arrays["mine/decodes"] + 1
    np.savez(tmp_path / "decode.npz", **arrays)
    with pytest.raises(AssertionError, match="mine"):
        check_folder(tmp_path, tmp_path, True)


def slow_greedy(case: Case, inputs: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The same without a cache: the whole decoder again for every token."""
    tokens, done = np.zeros((len(inputs), length), np.int32), np.zeros(len(inputs), bool)
    for place in range(length):
        batch = {
            "encoder_input_tokens": inputs,
            "decoder_target_tokens": np.ones_like(tokens),
            "decoder_input_tokens": np.pad(tokens, ((0, 0), (1, 0)))[:, :-1],
        }
        chosen = np.asarray(jnp.argmax(forward(case.params, case.model, batch)[:, place], axis=-1))
        tokens[:, place] = np.where(done, 0, chosen)
        done |= chosen == 1
    return tokens, teacher_forced(case, inputs, tokens).sum(1)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_equals_decoding_without_a_cache(form):
    model = Model(**(vars(TINY) | form))
    case = Case(Path(), model, initialize(declare(model), jax.random.key(7)), {}, {}, False)
    inputs = np.random.default_rng(1).integers(2, 24, (4, 9)).astype(np.int32)
    inputs[1, 4:] = 0
    tokens, log_probs = slow_greedy(case, inputs, 8)
    ours = greedy(case.params, model, inputs, 8)
    np.testing.assert_array_equal(ours.tokens, tokens)
    np.testing.assert_allclose(ours.log_probs, log_probs, atol=2e-4)


@pytest.mark.short
def test_padding_changes_nothing():
    params = initialize(declare(TINY), jax.random.key(0))
    inputs = np.random.default_rng(2).integers(2, 24, (2, 6)).astype(np.int32)
    alone = greedy(params, TINY, inputs, 6).tokens
    np.testing.assert_array_equal(greedy(params, TINY, np.pad(inputs, ((0, 0), (0, 5))), 6).tokens, alone)
    np.testing.assert_array_equal(greedy(params, TINY, inputs, 9).tokens[:, :6], alone)


@pytest.mark.short
def test_forced_tokens_stand_where_they_must():
    params = initialize(declare(TINY), jax.random.key(0))
    inputs = np.random.default_rng(2).integers(2, 24, (2, 6)).astype(np.int32)
    forced = np.array([[5, 0, 6], [0, 1, 0]], np.int32)
    tokens = np.asarray(greedy(params, TINY, inputs, 6, forced_tokens_BxT=forced).tokens)
    assert tokens[0, 0] == 5 and tokens[0, 2] == 6
    assert tokens[1, 1] == 1 and not tokens[1, 2:].any()


@pytest.mark.short
def test_impossible_requests_are_refused():
    params = initialize(declare(TINY), jax.random.key(0))
    inputs = np.full((2, 3), 4, np.int32)
    with pytest.raises(ValueError, match="max_length is 0"):
        greedy(params, TINY, inputs, 0)
    with pytest.raises(ValueError, match="forced tokens have shape"):
        greedy(params, TINY, inputs, 2, forced_tokens_BxT=np.ones((2, 3), np.int32))
    assert isinstance(greedy(params, TINY, inputs, 1), Decoded)


@pytest.mark.short
def test_rows_that_only_fill_a_batch_up_stay_empty_and_keep_no_other_waiting(monkeypatch):
    params = initialize(declare(TINY), jax.random.key(0))
    inputs = np.random.default_rng(2).integers(2, 24, (2, 6)).astype(np.int32)
    alone = greedy(params, TINY, inputs, 5)
    filled = greedy(params, TINY, np.pad(inputs, ((0, 3), (0, 0))), 5)
    np.testing.assert_array_equal(filled.tokens[:2], alone.tokens)
    assert not np.asarray(filled.tokens[2:]).any() and not np.asarray(filled.log_probs[2:]).any()

    written = []

    def counted(*arguments):
        jax.debug.callback(lambda: written.append(1))
        return advance(*arguments)

    monkeypatch.setattr(decoding, "advance", counted)
    forced = np.zeros((6, 7), np.int32)  # a shape that is compiled for the first time, with what counts
    forced[:2, 1] = 1  # the sequences end with their second token
    greedy(params, TINY, np.pad(inputs, ((0, 4), (0, 0))), 7, forced_tokens_BxT=forced)
    jax.effects_barrier()
    assert len(written) == 2


def test_the_largest_is_found_as_argmax_finds_it():
    logits = np.random.default_rng(0).integers(0, 9, (3, 2, 700)).astype(np.float32)
    logits[0, 0] = -np.inf
    np.testing.assert_array_equal(decoding._largest(logits), np.argmax(logits, axis=-1))
    logits[1, 1, 3] = np.nan
    assert np.all(decoding._largest(logits) < 700)


DIVIDED = """
import jax
from jax.sharding import NamedSharding, PartitionSpec
from spanloom.model.decoding import _largest
mesh = jax.make_mesh((2,), ("tensor",), axis_types=(jax.sharding.AxisType.Auto,))
logits = jax.ShapeDtypeStruct((3, 1, 700), "float32", sharding=NamedSharding(mesh, PartitionSpec(None, None, "tensor")))
print(jax.jit(_largest).lower(logits).compile().as_text())
"""


def test_devices_that_divide_the_vocabulary_send_one_another_no_logits():
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    said = subprocess.run([sys.executable, "-c", DIVIDED], env=env, capture_output=True, text=True, check=True).stdout
    sent = re.findall(r"= (\w+)\[([\d,]*)\]\S* (all-\w+)\(", said)
    assert {kind for _, _, kind in sent} == {"all-reduce"}
    assert all(np.prod([int(size) for size in shape.split(",") if size]) == 3 for _, shape, _ in sent)
