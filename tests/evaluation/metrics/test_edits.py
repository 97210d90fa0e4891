from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloom.evaluation.metrics.edits import (
    char_error_rate,
    distance,
    edit_distance,
    pronunciation,
    word_error_rate,
)

texts = st.text(alphabet="abc", max_size=9)


def by_definition(one, other):
    @cache
    def cost(i, j):
        if not i or not j:
            return i + j
        replaced = cost(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(replaced, cost(i - 1, j) + 1, cost(i, j - 1) + 1)

    return cost(len(one), len(other))


@given(texts, texts)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_distances_are_the_fewest_edits(one, other):
    assert distance(one, other) == distance(other, one) == by_definition(one, other)


def test_any_items_can_be_compared():
    assert distance([1, "a", (2,)], ["a", (2,)]) == 1 and distance([], []) == 0 and distance("kitten", "sitting") == 3


def test_distances_in_words():
    found = edit_distance(["A b, c", "x"], ["a B  c", ""])
    assert found == {"min_edit": 0, "max_edit": 1, "mean_edit": 0.5, "median_edit": 0.5, "sum_edit": 1}
    assert edit_distance(["A"], ["a"], lower=False)["sum_edit"] == 1


def test_rates_are_of_all_parts_of_the_targets():
    assert word_error_rate(["a b c", "d"], ["a c", "d e f"]) == {"wer": 75.0}
    assert char_error_rate(["abc", "d"], ["ac", "d"]) == {"cer": 25.0}
    assert word_error_rate(["", "a"], ["x y", "a"]) == {"wer": 200.0}
    with pytest.raises(ValueError, match="cer is a share of what the targets hold, and all 2 of them are empty"):
        char_error_rate(["", ""], ["", "a"])


def test_pronunciations():
    found = pronunciation(["k a t", "d ɔ ɡ", "tʰ u"], ["k a t", "d o ɡ", "t u"])
    assert found == pytest.approx({"wer": 100 * 2 / 3, "per": 100 * 2 / 8, "cer": 100 * 2 / 9})
    assert pronunciation(["k  a"], ["k a "]) == {"wer": 0.0, "per": 0.0, "cer": 0.0}
