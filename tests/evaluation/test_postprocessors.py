import inspect
import json
import math

import pytest
from golden_data import golden_dir

from spanloom.evaluation import postprocessors as pp
from spanloom.settings.measures import postprocessor_of
from spanloom.tasks.functions import resolve

EXAMPLE = {"answers": ("cat", "the bird"), "idx/passage": 3, "idx/query": 9, "context": "c", "language": "hu"}


def plain(value):
    """As JSON has it: tuples as lists, not a number as text."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return json.loads(json.dumps(value))


@pytest.mark.golden
def test_every_case_of_t5():
    cases = json.loads((golden_dir("seqio") / "postprocess_metrics.json").read_text(encoding="utf-8"))["postprocessors"]
    for case in cases:
        call = resolve(postprocessor_of(case["postprocessor"]))
        known = list(inspect.signature(call).parameters)
        (first,) = (key for key in case if key in {"string", "string_label", "answer", "score", "prediction"})
        named = {key: case[key] for key in known if key in case}
        assert plain(call(case[first], **named)) == case["result"], case
    assert len(cases) >= 38


def test_texts_become_numbers_and_classes():
    assert pp.string_to_float(" 2.0 ") == 2.0 and pp.string_to_float("x", default=0.0) == 0.0
    assert pp.string_label_to_class_id("b", ["a", "b"]) == 1 and pp.string_label_to_class_id("B", ["a", "b"]) == -1
    assert pp.lower_text("ÁB") == "áb"


def test_targets_carry_what_a_metric_needs_to_know():
    assert pp.record("cat", EXAMPLE, is_target=True) == {"value": ["cat", "the bird"], "group": (3, 9)}
    assert pp.record("cat", EXAMPLE) == {"value": "cat"}
    assert pp.qa("cat", EXAMPLE, is_target=True) == ["cat", "the bird"] and pp.qa("cat", EXAMPLE) == "cat"
    assert pp.grouped("k a", EXAMPLE, True, key="language") == {"value": "k a", "group": "hu"}
    assert pp.grouped("k a", EXAMPLE, key="language") == {"value": "k a"}


def test_a_missing_field_is_named():
    with pytest.raises(pp.ExampleError, match=r"no field 'idx/question' \(it has: answers, .*must keep it"):
        pp.multirc("True", EXAMPLE, is_target=True)
    with pytest.raises(pp.ExampleError, match=r"no field 'answers' \(it has: none\)"):
        pp.qa("x", None, is_target=True)


@pytest.mark.parametrize(
    ("said", "meant", "found"),
    [("The cat", "cat", 1), ("Cat", "the big cat", 1), ("dog", "cat", 0), ("the", "cat", -1), ("Bob's hat", "Bob", 0)],
)
def test_a_referent_is_named_but_for_determiners(said, meant, found):
    assert pp.wsc_simple(said, {"targets_pretokenized": meant}) == found
    assert pp.wsc_simple(said, {"label": 1}, is_target=True) == 1


def test_options_carry_what_ranking_needs():
    row = {"idx": [3, 1], "is_correct": True, "targets": [5, 1], "lang": "hu"}
    assert pp.rank_classification(-1.5, row) == -1.5
    assert pp.rank_classification(None, row, is_target=True) == ([3, 1], True, 1.0, 2)
    assert pp.rank_classification(None, {**row, "weight": 2.0}, True, ("lang",)) == ([3, 1], True, 2.0, 2, "hu")
