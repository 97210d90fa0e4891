import numpy as np
import pytest

from spanloom.evaluation.options import Option, RankingError, options_of

pytestmark = pytest.mark.short


def right(example):
    return [one.is_correct for one in options_of({"inputs": "in", **example}, 7)]


def test_an_example_has_an_option_for_each_choice():
    found = options_of({"inputs": "in", "answer_choices": ["yes", "no"], "label": 1, "weight": 0.5}, 7)
    assert found == [Option(7, 0, 2, "in", "yes", False, 0.5), Option(7, 1, 2, "in", "no", True, 0.5)]


@pytest.mark.parametrize(
    ("example", "wanted"),
    [
        ({"answer_choices": ["a", "b", "c"], "label": 2}, [False, False, True]),
        ({"answer_choices": ["a", "b", "c"], "label": [0, 2]}, [True, False, True]),
        ({"answer_choices": np.array(["a", "b"]), "label": np.int64(0)}, [True, False]),
        ({"answer_choices": ["a", "a"], "label": 1}, [True, True]),  # they read alike
        ({"answer_choices": ["a", "b"], "is_correct": [False, True], "label": 0}, [False, True]),
        ({"answer_choices": ["a", "b"], "targets": "\n b "}, [False, True]),
        ({"answer_choices": ["a"], "targets": "a"}, [True]),
        ({"answer_choices": ["a", "b"], "targets": "c"}, [False, False]),
        ({"answer_choices": ["a", "b"], "label": -1}, [False, False]),
    ],
)
def test_which_are_right(example, wanted):
    assert right(example) == wanted


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ({}, "example 7: answer_choices is None, and must be a list of texts"),
        ({"answer_choices": "a ||| b"}, "must be a list of texts"),
        ({"answer_choices": []}, "must be a list of texts"),
        ({"answer_choices": ["a", "b"]}, "example 7: neither label, is_correct nor targets says which"),
        ({"answer_choices": ["a", "b"], "label": 2}, "example 7: label 2 is no number from -1 to 1"),
        ({"answer_choices": ["a", "b"], "label": -2}, "label -2 is no number from -1 to 1"),
        ({"answer_choices": ["a", "b"], "label": "b"}, "label 'b' is no number from -1 to 1"),
        ({"answer_choices": ["a", "b"], "is_correct": [True]}, "example 7: 1 of is_correct for 2 answer_choices"),
    ],
)
def test_an_example_that_does_not_say_what_is_right_is_refused(example, said):
    with pytest.raises(RankingError, match=said):
        right(example)


def test_a_row_of_a_cache_is_one_option():
    row = {"idx": [4, 1], "inputs": [8, 7], "targets": [9, 1], "is_correct": 1}
    assert options_of(row, 0) == [Option(4, 1, 0, [8, 7], [9, 1], True, 1.0)]
    assert options_of({**row, "weight": 2.0}, 0)[0].weight == 2.0
    with pytest.raises(RankingError, match=r"no row of an option \(ValueError: .*'idx': \[4\]"):
        options_of({**row, "idx": [4]}, 0)
