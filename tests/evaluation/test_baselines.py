import itertools
import math

import numpy as np
import pytest

from spanloom.evaluation import baselines
from spanloom.evaluation.baselines import NO_CONTEXT, baseline_losses, contexts_of, fit
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

VOCABULARY = build(Bytes())
S0, S1 = VOCABULARY.sentinels[:2]
EOS = VOCABULARY.eos_id
TEXT = np.array([i for i in range(2, VOCABULARY.size) if i not in VOCABULARY.sentinels])
pytestmark = pytest.mark.short


def ids(text: str) -> list[int]:
    return VOCABULARY.encode(text).tolist()


def batch(inputs: list[list[int]], targets: list[list[int]]) -> dict[str, np.ndarray]:
    def rows(values: list[list[int]]) -> np.ndarray:
        width = max(map(len, values)) + 1
        return np.array([v + [0] * (width - len(v)) for v in values], np.int32)

    made = {"encoder_input_tokens": rows(inputs), "decoder_target_tokens": rows(targets)}
    return made | {"decoder_loss_weights": (made["decoder_target_tokens"] != 0).astype(np.int32)}


def markov_text(length: int, seed: int) -> np.ndarray:
    """A chain on three letters in which the next one is nearly certain."""
    rng, letters, chain = np.random.default_rng(seed), ids("abc"), [0]
    for _ in range(length - 1):
        chain.append((chain[-1] + (1 if rng.random() < 0.9 else 2)) % 3)
    return np.array(letters)[chain]


def test_context_is_the_token_before_even_across_a_gap():
    made = batch(
        [[*ids("ab"), S0, *ids("cd"), S1, EOS], [S0, *ids("x"), EOS]],
        [[S0, *ids("xy"), S1, *ids("z"), EOS], [S0, *ids("q"), EOS]],
    )
    (b,), (d,), (x,), (y,), (z,), (q,) = (ids(c) for c in "bdxyzq")
    expected = [[NO_CONTEXT, b, x, y, d, z, EOS], [NO_CONTEXT, NO_CONTEXT, q, EOS] + [NO_CONTEXT] * 3]
    got = contexts_of(made, VOCABULARY)
    assert got[0, :6].tolist() == expected[0][:6]
    assert got[1, :3].tolist() == expected[1][:3]


@pytest.mark.parametrize("length", [50, 5000, 60_000])
def test_models_are_probability_distributions(length):
    unigram, bigram = fit([markov_text(length, 0)], VOCABULARY)
    for context in [NO_CONTEXT, EOS, *ids("abcz")]:
        for model in (unigram, bigram):
            probabilities = np.exp(model.score(np.full(len(TEXT), context), TEXT))
            assert math.isclose(probabilities.sum(), 1.0, rel_tol=1e-9)
            assert probabilities.min() > 0


def test_losses_approach_the_entropy_of_the_source():
    train, heldout = markov_text(60_000, 0), markov_text(6_000, 1)
    rows = heldout.reshape(-1, 60).tolist()
    made = batch([[S0, EOS]] * len(rows), [[S0, *row, EOS] for row in rows])
    losses, _ = baseline_losses([train[:30_000], train[30_000:]], [made], VOCABULARY)
    entropy = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert losses["unigram"].text_loss == pytest.approx(math.log(3), rel=0.01)
    first_token = (math.log(3) - entropy) / 60
    assert losses["bigram"].text_loss == pytest.approx(entropy + first_token, rel=0.05)


def test_sentinels_and_end_of_sequence_cost_nothing():
    text = markov_text(6000, 0)
    made = batch([[*ids("ab"), S0, EOS]], [[S0, *ids("abc"), EOS, *ids("a"), EOS]])
    losses_of, tokens = baseline_losses([text], [made], VOCABULARY)
    assert tokens == 7
    for losses in losses_of.values():
        assert losses.loss == pytest.approx(losses.text_loss * 4 / 7)


def test_padding_and_weightless_rows_are_left_out():
    text = markov_text(6000, 0)
    one = batch([[*ids("ab"), S0, EOS]], [[S0, *ids("abc"), EOS]])
    filled = {name: np.pad(rows, ((0, 3), (0, 4))) for name, rows in one.items()}
    assert baseline_losses([text], [one], VOCABULARY) == baseline_losses([text], [filled], VOCABULARY)


def test_bigram_equals_a_plain_count():
    text = np.array([EOS, *ids("abracadabra abba"), EOS, *ids("cab")])
    unigram, bigram = fit([text], VOCABULARY)
    pairs = [(a, b) for a, b in itertools.pairwise(text) if b != EOS]
    for context, token in [(ids("a")[0], ids("b")[0]), (EOS, ids("c")[0]), (ids("b")[0], ids("z")[0])]:
        after = [b for a, b in pairs if a == context]
        kept = max(after.count(token) - bigram.discount, 0)
        lower = math.exp(unigram.score(np.array([0]), np.array([token]))[0])
        expected = (kept + bigram.discount * len(set(after)) * lower) / len(after)
        assert bigram.score(np.array([context]), np.array([token]))[0] == pytest.approx(math.log(expected))


def test_smoothing_is_tuned_on_training_text():
    """Random text shares nothing from pair to pair, a chain everything: the discounts differ."""
    noise = np.random.default_rng(0).choice(TEXT[1:], 20_000)
    assert fit([noise], VOCABULARY)[1].discount > fit([markov_text(20_000, 0)], VOCABULARY)[1].discount


def test_long_text_is_cut(monkeypatch):
    monkeypatch.setattr(baselines, "MOST_TOKENS", 100)
    endless = (markov_text(60, seed) for seed in range(10**9))
    assert fit(endless, VOCABULARY)[1].counts.sum() == 99


def test_nothing_to_count_or_to_compare_is_an_error():
    with pytest.raises(ValueError, match="no training text"):
        fit([np.array([EOS, EOS])], VOCABULARY)
    with pytest.raises(ValueError, match="no training text"):
        fit([], VOCABULARY)
    with pytest.raises(ValueError, match="no text to compare"):
        baseline_losses([markov_text(500, 0)], [batch([[S0, EOS]], [[S0, EOS]])], VOCABULARY)
