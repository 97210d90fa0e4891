import pickle

import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import RankClassification, RankClassificationFormatter


def inputs(example):
    return [example["q"]] * len(example["choices"])


def choices(example):
    return example["choices"]


def is_correct(example):
    return [choice == example["a"] for choice in example["choices"]]


EXAMPLE = {"q": "Q", "choices": ["x", "y"], "a": "y", "keep": 9}


@pytest.mark.short
def test_functions_give_the_choices():
    ranking = RankClassification(inputs, choices, is_correct, passthrough_feature_keys=("keep",))
    rows = list(pickle.loads(pickle.dumps(ranking))(EXAMPLE, 4))
    assert rows[1] == {"idx": [4, 1], "inputs": "Q", "targets": "y", "is_correct": True, "keep": 9}
    assert [row["idx"] for row in RankClassification(inputs, choices, is_correct, mode="train")(EXAMPLE, 4)] == [[4, 1]]
    with pytest.raises(FieldError, match="choices of different numbers: 2 inputs, 2 targets, 1 is_correct"):
        list(RankClassification(inputs, choices, lambda x: [True])(EXAMPLE, 0))


@pytest.mark.short
def test_formats_give_the_choices():
    form = RankClassificationFormatter(["{a}{b/c}", "{b/c}"], ["one {a b}", "two {{a}}"], weight_key="w")
    example = {"a": r"\1", "b": {"c": "{a}"}, "label": 1, "w": 2}
    rows = list(form(example, 3))
    assert [(row["inputs"], row["targets"]) for row in rows] == [(r"\1{a}", "one {a b}"), ("{a}", r"two {\1}")]
    assert [(row["is_correct"], row["weight"], row["idx"]) for row in rows] == [
        (False, 2.0, [3, 0]),
        (True, 2.0, [3, 1]),
    ]
    [few] = RankClassificationFormatter("{a}", ["x", "y"], mode="fewshot_eval")(example, 0)
    assert few["inputs"] == [r"\1", r"\1"] and few["is_correct"] == [False, True]
    for formats in (("{a}", "{b}"), (["a"], ["b", "c"])):
        with pytest.raises(ValueError, match="one or both are lists, of one length"):
            RankClassificationFormatter(*formats)
    with pytest.raises(FieldError, match="no field 'z'"):
        list(RankClassificationFormatter("{z}", ["x"])(example, 0))
