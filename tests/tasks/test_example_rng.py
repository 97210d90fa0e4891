import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tasks.example_rng import ExampleRng
from spanloom.tasks.randomness import stream64

pytestmark = pytest.mark.short
KEYS = st.integers(0, 2**64 - 1)


@given(KEYS)
def test_its_bits_are_the_streams_of_its_key(key):
    rng = ExampleRng(key)
    stream = stream64(np.array([key], np.uint64), 5)[0].tolist()
    assert [rng.integers(2**63) for _ in range(5)] == [bits >> 1 for bits in stream]


def test_numbers_never_change():
    """What a key gives is part of what a run is: runs of other releases go on with it."""
    rng = ExampleRng(7)
    assert rng.integers(1000, size=4).tolist() == [389, 16, 900, 582]
    assert rng.random() == 0.45244189501146836
    assert rng.normal() == pytest.approx(-0.6762797539647376, abs=1e-12)
    items = list(range(8))
    rng.shuffle(items)
    assert items == [3, 0, 2, 5, 4, 7, 1, 6]
    assert rng.choice("abc") == "c"
    assert rng.sample("abcdef", 3) == ["f", "d", "a"]


@given(KEYS, st.integers(0, 20))
def test_many_at_once_are_those_of_single_calls(key, size):
    for draw in (
        lambda rng, size: rng.random(size),
        lambda rng, size: rng.integers(-3, 9, size),
        lambda rng, size: rng.normal(1.0, 2.0, size),
    ):
        one, many = ExampleRng(key), ExampleRng(key)
        assert draw(many, size).tolist() == [draw(one, None) for _ in range(size)]


@given(KEYS, st.integers(-(2**40), 2**40), st.integers(1, 2**50))
def test_integers_lie_within_their_bounds(key, low, span):
    rng = ExampleRng(key)
    assert all(low <= rng.integers(low, low + span) < low + span for _ in range(5))
    assert all(0 <= rng.integers(span) < span for _ in range(5))


@given(KEYS, st.lists(st.integers(), max_size=30))
def test_shuffling_keeps_the_items(key, items):
    shuffled = list(items)
    ExampleRng(key).shuffle(shuffled)
    assert sorted(shuffled) == sorted(items)
    array = np.array(items, object)
    ExampleRng(key).shuffle(array)
    assert array.tolist() == shuffled


@given(KEYS, st.integers(0, 12))
def test_a_sample_has_different_items(key, count):
    found = ExampleRng(key).sample("abcdefghijkl", count)
    assert len(found) == len(set(found)) == count


def test_draws_are_as_likely_as_they_should_be():
    rng = ExampleRng(3)
    count = 6000
    dice = Counter(rng.integers(6) for _ in range(count))
    assert all(abs(dice[i] - count / 6) < 5 * math.sqrt(count / 6) for i in range(6))
    orders = Counter("".join(rng.sample("abc", 3)) for _ in range(count))
    assert len(orders) == 6 and all(abs(seen - count / 6) < 5 * math.sqrt(count / 6) for seen in orders.values())
    weighted = Counter(rng.choice("ab", [1, 3]) for _ in range(count))
    assert abs(weighted["b"] - 0.75 * count) < 5 * math.sqrt(count * 0.75 * 0.25)
    assert "c" not in {rng.choice("abc", [1, 1, 0]) for _ in range(200)}
    normal = rng.normal(size=count)
    assert abs(normal.mean()) < 5 / math.sqrt(count) and abs(normal.std() - 1) < 0.05
    uniform = rng.random(size=count)
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda rng: rng.integers(0), "there is none"),
        (lambda rng: rng.integers(5, 5), "there is none"),
        (lambda rng: rng.integers(0, 2**65), "wider than 64 bits"),
        (lambda rng: rng.choice([]), "no items"),
        (lambda rng: rng.choice([1, 2], [1]), "as many weights"),
        (lambda rng: rng.choice([1, 2], [0, 0]), "not all 0"),
        (lambda rng: rng.choice([1, 2], [-1, 2]), "none below 0"),
        (lambda rng: rng.sample([1], 2), "2 of 1 items"),
    ],
)
def test_what_cannot_be_drawn_is_said(draw, said):
    with pytest.raises(ValueError, match=said):
        draw(ExampleRng(0))
