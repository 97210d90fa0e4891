import itertools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spanloom.model import decoding, decoding_beams
from spanloom.model.decoding import get_ready, greedy
from spanloom.model.decoding_beams import beam_search
from spanloom.model.decoding_rules import Rules, likeliest
from spanloom.model.params import declare, initialize
from spanloom.model.scoring import token_log_probs
from spanloom.settings.model import Model

TINY = Model(vocab_size=12, d_model=16, d_ff=16, num_heads=2, d_kv=8, num_encoder_layers=1, num_decoder_layers=2)
INPUTS = np.random.default_rng(1).integers(2, 12, (3, 5)).astype(np.int32)


@pytest.fixture(scope="module")
def params():
    return initialize(declare(TINY), jax.random.key(2))


def search(params, length, count, **more):
    rules = Rules(np.zeros((3, length), np.int32))
    return beam_search(get_ready(params, TINY), TINY, INPUTS, rules, np.full(3, length), count=count, **more)


def test_as_many_beams_as_there_are_sequences_find_them_all(params):
    """All that end within two tokens, with the log-probability that the whole decoder gives them, and T5X's penalty."""
    every = [[1, 0], *([token, 1] for token in range(12) if token > 1)]
    beams = search(params, 2, 66)  # 2 K continuations are all of 12 x 11
    for row in range(3):
        pairs = {
            tuple(tokens.tolist()): (float(score), float(log_prob))
            for tokens, score, log_prob in zip(*(np.asarray(x)[row] for x in beams), strict=True)
        }
        batch = {
            "encoder_input_tokens": np.repeat(INPUTS[row : row + 1], len(every), 0),
            "decoder_target_tokens": np.array(every, np.int32),
            "decoder_input_tokens": np.array([[0, first] for first, _ in every], np.int32),
        }
        log_probs = np.asarray(token_log_probs(params, TINY, batch)).sum(1)
        for tokens, log_prob in zip(every, log_probs, strict=True):
            length = 1 if tokens[0] == 1 else 2
            score, found = pairs[tuple(tokens)]
            assert found == pytest.approx(log_prob, abs=1e-5)
            assert score == pytest.approx(log_prob / ((5 + length) / 6) ** 0.6, abs=1e-5)


@pytest.mark.parametrize("rule", ["t5x", "transformers"])
def test_a_cache_that_grows_gives_the_same(params, rule, monkeypatch):
    whole, greedily = search(params, 16, 3, rule=rule), greedy(params, TINY, INPUTS, 16)
    monkeypatch.setattr(decoding, "FIRST_ROOM", 4)
    grown = search(params, 16, 3, rule=rule)
    np.testing.assert_array_equal(grown.tokens, whole.tokens)
    np.testing.assert_allclose(grown.scores, whole.scores, atol=1e-5)
    np.testing.assert_array_equal(greedy(params, TINY, INPUTS, 16).tokens, greedily.tokens)


def test_limits_are_each_inputs_own(params):
    rules = Rules(np.zeros((3, 8), np.int32))
    weights = get_ready(params, TINY)
    mixed = beam_search(weights, TINY, INPUTS, rules, np.array([3, 8, 5]), count=2)
    for row, length in enumerate((3, 8, 5)):
        alone = beam_search(weights, TINY, INPUTS, rules, np.full(3, length), count=2)
        np.testing.assert_array_equal(mixed.tokens[row], alone.tokens[row])
        np.testing.assert_allclose(mixed.scores[row], alone.scores[row], atol=1e-5)


END, *OTHERS = (0.4, 0.35, 0.15, 0.1)
"""Probabilities of the end of sequence and of three tokens, the same at every place."""


def steps_of_t5x(limit: int, alpha: float, count: int, longest: int) -> int:
    """After how many tokens T5X's search is over, by its own words on small lists: when the worst of `count` finished
    scores is above what the best live sequence would have at the longest length."""
    live, finished = [0.0], []
    for length in range(1, limit + 1):
        # The 2 K best of all continuations.
        both = [(before + math.log(p), False) for before in live for p in OTHERS]
        both += [(before + math.log(END), True) for before in live]
        both = sorted(both, reverse=True)[: 2 * count]
        live = [score for score, ends in both if not ends][:count]
        finished += [score / ((5 + length) / 6) ** alpha for score, ends in both if ends]
        finished = sorted(finished, reverse=True)[:count]
        if len(finished) == count and finished[-1] > live[0] / ((5 + longest) / 6) ** alpha:
            return length
    return limit


def test_search_ends_when_no_live_beam_can_come_to_beat_the_worst_finished_one(params, monkeypatch):
    """After exactly as many tokens as T5X's bound says, whose longest length counts the start token, too."""
    steps, real = [], decoding_beams.advance

    def counted(*arguments):
        """Whatever was written, the same probabilities."""
        logits, cache = real(*arguments)
        jax.debug.callback(lambda: steps.append(1))
        fixed = jnp.full(logits.shape[-1], -1e4).at[1:5].set(jnp.log(jnp.array([END, *OTHERS])))
        return jnp.broadcast_to(fixed, logits.shape), cache

    monkeypatch.setattr(decoding_beams, "advance", counted)
    model = replace(TINY, name="counted")  # a program of its own, which no other test is given
    found = {}
    for limit, alpha in itertools.product((8, 12, 16), (0.0, 0.6, 1.0, 1.5, 3.0)):
        rules, limits = Rules(np.zeros((1, 16), np.int32)), np.array([limit])
        beam_search(get_ready(params, TINY), model, INPUTS[:1], rules, limits, count=2, alpha_B=alpha)
        jax.effects_barrier()
        found[limit, alpha] = len(steps)
        steps.clear()
    assert found == {(limit, alpha): steps_of_t5x(limit, alpha, 2, limit + 1) for limit, alpha in found}
    for other in (lambda limit: limit, lambda limit: limit + 2, lambda limit: 1):  # the bound is seen in the numbers
        assert found != {(limit, alpha): steps_of_t5x(limit, alpha, 2, other(limit)) for limit, alpha in found}
    assert sum(length < limit for (limit, _), length in found.items()) >= 5
    assert len(set(found.values())) >= 5 and 16 in found.values()


@pytest.mark.parametrize("size", [12, 2000])
def test_the_likeliest_are_found_in_two_passes(size):
    logits = np.random.default_rng(0).permutation(2 * 3 * size).reshape(2, 3, size).astype(np.float32)
    values, tokens = likeliest(logits, 8)
    for row, k in itertools.product(range(2), range(3)):
        expected = np.argsort(-logits[row, k])[:8]
        np.testing.assert_array_equal(tokens[row, k], expected)
        np.testing.assert_array_equal(values[row, k], logits[row, k][expected])


@pytest.mark.parametrize("size", [12, 2000, 4096])
def test_of_equally_likely_tokens_the_lowest_come_first(size):
    """As in one sort of all, whatever groups they stand in."""
    logits = np.random.default_rng(1).integers(0, 6, (3, 4, size)).astype(np.float32)
    logits[..., size - 1] = 9  # its group comes first, and what else is in it does not
    for one, other in zip(likeliest(logits, 8), jax.lax.top_k(logits, 8), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [896, 897, 1920])
@pytest.mark.parametrize("count", [1, 7, 14, 15])
def test_as_many_as_there_are_groups_and_where_next_to_nothing_may_be_written(size, count):
    few = np.full((1, 2, size), -np.inf, np.float32)
    few[0, 0, size - 1], few[0, 1, 130] = 1, 2
    for logits in (few, np.random.default_rng(2).normal(size=(1, 2, size)).astype(np.float32)):
        for one, other in zip(likeliest(logits, count), jax.lax.top_k(logits, count), strict=True):
            np.testing.assert_array_equal(one, other)
