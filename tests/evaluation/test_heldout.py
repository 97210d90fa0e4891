import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.evaluation.heldout import heldout_metrics, make_heldout_step
from spanloom.model.params import declare, initialize
from spanloom.model.t5 import forward
from spanloom.settings.model import Model
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

VOCABULARY = build(Bytes())
TINY = Model(vocab_size=384, d_model=16, d_ff=32, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
pytestmark = pytest.mark.short


def make_batches(count: int) -> list[dict[str, np.ndarray]]:
    rng, batches = np.random.default_rng(0), []
    for _ in range(count):
        targets = rng.integers(3, 259, (3, 7)).astype(np.int32)
        targets[:, 0], targets[:, 4], targets[:, 6] = VOCABULARY.sentinels[0], VOCABULARY.sentinels[1], 1
        targets[2, 5:] = [1, 0]
        batches.append(
            {
                "encoder_input_tokens": rng.integers(3, 259, (3, 9)).astype(np.int32),
                "decoder_target_tokens": targets,
                "decoder_input_tokens": np.pad(targets, ((0, 0), (1, 0)))[:, :-1],
                "decoder_loss_weights": (targets != 0).astype(np.int32),
            }
        )
    batches[-1]["decoder_loss_weights"][1:] = 0
    return batches


def test_losses_are_sums_over_all_batches():
    params, batches = initialize(declare(TINY), jax.random.key(0)), make_batches(3)
    costs, texts, correct = [], [], []
    for batch in batches:
        log_probs = jax.nn.log_softmax(forward(params, TINY, batch))
        targets, real = batch["decoder_target_tokens"], batch["decoder_loss_weights"] > 0
        cost = -np.asarray(jnp.take_along_axis(log_probs, targets[..., None], axis=-1)[..., 0])
        text = real & ~np.isin(targets, [1, *VOCABULARY.sentinels])
        costs += cost[real].tolist()
        texts += cost[text].tolist()
        correct += (np.asarray(log_probs.argmax(-1)) == targets)[real].tolist()
    got = heldout_metrics(make_heldout_step(TINY, VOCABULARY), params, batches)
    assert got["heldout_loss"] == pytest.approx(np.mean(costs), rel=1e-5)
    assert got["heldout_text_loss"] == pytest.approx(np.mean(texts), rel=1e-5)
    assert got["heldout_accuracy"] == pytest.approx(np.mean(correct))
    assert (got["heldout_tokens"], got["heldout_text_tokens"]) == (len(costs), len(texts))


def test_no_targets_is_an_error():
    step = make_heldout_step(TINY, VOCABULARY)
    with pytest.raises(ValueError, match="no target"):
        heldout_metrics(step, initialize(declare(TINY), jax.random.key(0)), [])
