import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from spanloom.model.decoding import Sampling, filtered, get_ready, sample
from spanloom.model.decoding_rules import FORBIDDEN, Rules, allow
from spanloom.model.params import declare, flatten, initialize, unflatten
from spanloom.model.t5 import forward
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


WAYS = {
    "all": {"temperature": 1.0},
    "flatter": {"temperature": 1.8},
    "top-k": {"temperature": 0.7, "top_k": 5},
    "top-p": {"temperature": 0.7, "top_p": 0.8},
    "min-p": {"temperature": 0.7, "min_p": 0.08},
    "top-k, then top-p": {"temperature": 1.5, "top_k": 6, "top_p": 0.75},
    "all of them": {"temperature": 2.0, "top_k": 12, "top_p": 0.9, "min_p": 0.3},
}


def drawn_from(probabilities: np.ndarray, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> np.ndarray:
    """The distribution that is left of the model's, by sorting."""
    left = probabilities ** (1 / temperature)
    left /= left.sum()
    order = np.argsort(-left)
    if top_k:
        left[order[top_k:]] = 0
        left /= left.sum()
    mass = np.cumsum(left[order])
    left[order[1:][mass[:-1] >= top_p]] = 0
    left[left < min_p * left.max()] = 0
    return left / left.sum()


def test_tokens_are_drawn_as_often_as_they_are_likely():
    """Of 4,096 draws in each way none is a token that is left out, and frequencies are such as chance makes of what is
    left: a chi-squared test. In 10,000 seeds one would fail; the seeds are fixed."""
    params = initialize(declare(TINY), jax.random.key(0))
    flat = flatten(params)
    flat["decoder/logits_dense/kernel"] *= 2
    # 64 sequences of each of 64 inputs, all the same: a single one's sequences would attend to 4,096 times as many.
    params, rows, each = unflatten(TINY, flat), 64 * len(WAYS), 64
    inputs = np.repeat(np.random.default_rng(2).integers(2, 24, (1, 6)), rows, 0).astype(np.int32)
    first = {
        "encoder_input_tokens": inputs[:1],
        "decoder_target_tokens": np.ones((1, 1), np.int32),
        "decoder_input_tokens": np.zeros((1, 1), np.int32),
    }
    model = np.asarray(jax.nn.softmax(forward(params, TINY, first)[0, 0])).astype(np.float64)
    off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    settings = {name: np.repeat([{**off, **way}[name] for way in WAYS.values()], 64) for name in ("temperature", *off)}
    drawn = sample(
        get_ready(params, TINY),
        TINY,
        inputs,
        Rules(np.zeros((rows, 1), np.int32)),
        np.ones(rows),
        count=each,
        sampling=sampling(rows, **settings),
    )
    kinds = set()
    for tokens, (name, way) in zip(np.split(np.asarray(drawn.tokens), len(WAYS)), WAYS.items(), strict=True):
        expected = tokens.size * drawn_from(model, **way)
        observed = np.bincount(tokens.flatten(), minlength=24)
        assert not observed[expected == 0].any(), name
        is_rare = expected < 5  # too few for the test: together they are one kind
        cells = [np.append(x[~is_rare], x[is_rare].sum()) for x in (observed, expected)]
        seen, wanted = (x[cells[1] > 0] for x in cells)
        assert len(seen) >= 3, name
        assert chisquare(seen, wanted).pvalue > 1e-4, name
        kinds.add((expected > 0).sum())
    assert len(kinds) >= 5  # each leaves out what another does not


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
