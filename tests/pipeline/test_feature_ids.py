import numpy as np
import pytest

from spanloom.pipeline.feature_ids import FeatureError, ids_of, ordered_features, value_of
from spanloom.settings.feature import Feature
from spanloom.settings.objectives import SpanCorruption, Supervised
from spanloom.settings.task import PairFiles, Task, TextFiles
from spanloom.settings.vocabulary import Bytes
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
INPUTS = Feature("inputs")


def test_features_are_in_the_order_of_the_model():
    features = (Feature("label"), Feature("targets"), Feature("inputs"))
    names = [f.name for f in ordered_features(Task("t", PairFiles(), objective=Supervised(), features=features))]
    assert names == ["inputs", "targets", "label"]
    assert [f.name for f in ordered_features(Task("t", TextFiles(), objective=SpanCorruption()))] == ["text"]


@pytest.mark.parametrize(
    ("value", "ids"),
    [
        ("aé", [100, 198, 172]), ("", []), ([], []), ([3, 4], [3, 4]), ((0, 383), [0, 383]),
        (np.array([5, 6], np.uint16), [5, 6]), (np.empty(0, np.int32), []),
    ],
)  # fmt: skip
def test_text_and_ids_become_ids(value, ids):
    assert ids_of(value_of({"inputs": value}, INPUTS, BYTES), BYTES).tolist() == ids


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "'inputs' is None, and must be text, or token ids"),
        (3, "'inputs' is of type int"),
        (True, "'inputs' is of type bool"),
        (b"abc", "'inputs' is of type bytes .* decode it in a preprocessor"),
        ([1.5], "'inputs' is of type list"),
        ([True], "'inputs' is of type list"),
        ([[1], [2]], "'inputs' is of type list"),
        ([[1, 2], [3]], r"'inputs' is of type list \(\[\[1, 2\], \[3\]\]\)"),
        (["a"], "'inputs' is of type list"),
        ({"a": 1}, "'inputs' is of type dict"),
        ([-1], "the id -1, and its vocabulary has 0 to 383"),
        ([5, 384], "the id 384"),
        ([5, 1], r"end with an end of sequence, .* Feature\('inputs', add_eos=False\)"),
        ("\ud800", r"half a character \(lone surrogate \\ud800\)"),
    ],
)
def test_what_is_neither_is_said(value, said):
    with pytest.raises(FeatureError, match=said):
        value_of({"inputs": value}, INPUTS, BYTES)


def test_an_end_of_sequence_may_stand_there_where_none_is_put():
    feature = Feature("inputs", add_eos=False)
    assert ids_of(value_of({"inputs": [5, 1]}, feature, BYTES), BYTES).tolist() == [5, 1]


def test_what_is_missing_is_named_unless_it_may_be():
    with pytest.raises(FeatureError, match="the feature 'inputs' is missing; the fields are 'input', 'b'"):
        value_of({"input": "a", "b": 1}, INPUTS, BYTES)
    assert ids_of(value_of({}, Feature("inputs", required=False), BYTES), BYTES).tolist() == []


@pytest.mark.parametrize(
    ("value", "dtype", "numbers"),
    [(-3, "int64", [-3]), ([1, 2], "int64", [1, 2]), (True, "int64", [1]), (0.5, "float32", [0.5]),
     ([1, 0.25], "float32", [1.0, 0.25]), (np.arange(2), "float32", [0.0, 1.0]), ([], "int64", [])],
)  # fmt: skip
def test_numbers_are_numbers(value, dtype, numbers):
    found = value_of({"n": value}, Feature("n", dtype=dtype), BYTES)
    assert found.dtype == dtype and found.tolist() == numbers


@pytest.mark.parametrize(
    ("value", "dtype"),
    [("a", "int64"), (0.5, "int64"), (None, "float32"), ([[1]], "float32"), ([[1], [2, 3]], "float32")],
)
def test_what_is_no_number_is_said(value, dtype):
    with pytest.raises(FeatureError, match=r"and must be (whole )?numbers"):
        value_of({"n": value}, Feature("n", dtype=dtype), BYTES)
