import jax
import numpy as np
import pytest

from spanloom.model.decoding import Sampling, filtered, get_ready, sample
from spanloom.model.decoding_rules import FORBIDDEN, Rules, allow
from spanloom.model.params import declare, initialize
from spanloom.settings.model import Model

TINY = Model(vocab_size=24, d_model=16, d_ff=16, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=1)
pytestmark = pytest.mark.short


def sampling(rows: int, **changes) -> Sampling:
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": np.arange(rows)} | changes
    kinds = (np.float32, np.int32, np.float32, np.float32, np.uint32)
    return Sampling(*(np.broadcast_to(off[n], rows).astype(kind) for n, kind in zip(Sampling._fields, kinds)))  # noqa: B905


def kept(logits: np.ndarray, **changes) -> np.ndarray:
    rows = Sampling(*(x[:, None, None] for x in sampling(len(logits), **changes)))
    return np.asarray(filtered(logits, rows)) > FORBIDDEN / 2


def test_filters_keep_what_sorting_would():
    logits = np.random.default_rng(0).normal(0, 3, (4, 2, 50)).astype(np.float32)
    order = np.argsort(-logits, axis=-1)
    rank = np.argsort(order, axis=-1)
    np.testing.assert_array_equal(
        kept(logits, top_k=np.array([1, 5, 0, 50])), rank < np.array([1, 5, 50, 50])[:, None, None]
    )
    probabilities = np.asarray(jax.nn.softmax(logits, axis=-1)).astype(np.float64)
    before = np.cumsum(np.take_along_axis(probabilities, order, -1), -1) - np.take_along_axis(probabilities, order, -1)
    before = np.take_along_axis(before, rank, -1)
    top_p = np.array([0.1, 0.5, 0.9, 1.0])
    np.testing.assert_array_equal(
        kept(logits, top_p=top_p), (before < top_p[:, None, None]) | (top_p == 1)[:, None, None]
    )
    least = 0.2 * probabilities.max(-1, keepdims=True)
    np.testing.assert_array_equal(kept(logits, min_p=0.2), probabilities >= least)


def test_tokens_are_drawn_as_often_as_they_are_likely():
    params = initialize(declare(TINY), jax.random.key(0))
    inputs, count = np.random.default_rng(2).integers(2, 24, (2, 6)).astype(np.int32), 2000
    rules, limit = Rules(np.zeros((2, 1), np.int32)), np.ones(2)
    drawn = sample(
        get_ready(params, TINY), TINY, inputs, rules, limit, count=count, sampling=sampling(2, temperature=0.7)
    )
    for row in range(2):
        tokens, log_probs = np.asarray(drawn.tokens)[row, :, 0], np.asarray(drawn.log_probs)[row, :, 0]
        scaled = np.zeros(24)
        for token in range(24):
            if (tokens == token).any():
                scaled[token] = np.exp(log_probs[tokens == token][0] / 0.7)
        expected = scaled / scaled.sum()
        observed = np.bincount(tokens, minlength=24) / count
        assert np.abs(observed - expected).max() < 5 * np.sqrt(0.25 / count)


def test_ngrams_of_each_inputs_own_length_come_once():
    written = np.array([[[5, 6, 7, 5, 6, 0]], [[5, 6, 7, 5, 6, 0]], [[5, 6, 7, 5, 6, 0]]], np.int32)
    rules = Rules(np.zeros((3, 6), np.int32), ngram_B=np.array([3, 1, 0], np.int32))
    logits = np.zeros((3, 1, 10), np.float32)
    forbidden = [np.flatnonzero(row < 0).tolist() for row in np.asarray(allow(logits, rules, written, 5))[:, 0]]
    assert forbidden == [[7], [0, 5, 6, 7], []]  # the start token is 0
    first = np.asarray(allow(logits, rules, written, 0))
    assert np.argwhere(first).tolist() == [[1, 0, 0]]


def test_only_choices_go_on_and_inputs_without_any_are_free():
    choices = np.array([[[5, 6, 1], [5, 7, 1], [8, 1, 0], [0, 0, 0]], [[0] * 3] * 4], np.int32)
    rules = Rules(np.zeros((2, 3), np.int32), choices)
    logits = np.zeros((2, 1, 10), np.float32)

    def allowed(written: list[int]) -> list[list[int]]:
        tokens = np.array([[written + [0] * (3 - len(written))]] * 2, np.int32)
        found = np.asarray(allow(logits, rules, tokens, len(written)))
        return [np.flatnonzero(row == 0).tolist() for row in found[:, 0]]

    assert allowed([]) == [[5, 8], list(range(10))]
    assert allowed([5]) == [[6, 7], list(range(10))]
    assert allowed([8])[0] == [1]
