from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import task_functions as own
from hypothesis import given
from hypothesis import strategies as st

from spanloom.settings.objectives import Supervised
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.preprocessing import PreprocessorError, Preprocessors, preprocessed, shown_example
from spanloom.tasks.text_preprocessors import FilterByStringLength, Rekey, WscSimple
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())


def task_of(*preprocessors, **objective):
    return Task("words", PairFiles(), objective=Supervised(**objective), preprocessors=preprocessors)


def chain_of(*preprocessors, **objective):
    return Preprocessors(task_of(*preprocessors, **objective), BYTES)


ROW = {"inputs": "a b c d e f g", "targets": "x"}


def test_what_it_returns_says_what_it_does():
    dropped = Counter()
    chain = chain_of(own.not_third, own.doubled, own.prefixed, FilterByStringLength("inputs", max_length=7))
    found = [one for number in range(3) for one in chain.build({"inputs": "a", "targets": "b"}, number, dropped)]
    assert [one["inputs"] for one in found] == ["say: a", "say: a!"] * 2
    assert dropped == {"not_third": 1}
    assert not chain.build({"inputs": "too long", "targets": ""}, 0, dropped)
    assert dropped == {"not_third": 1, "FilterByStringLength(feature_key='inputs', min_length=1, max_length=7)": 2}


def test_a_flat_map_that_gives_nothing_is_counted_too():
    dropped = Counter()
    row = {"label": 0, "text": "a b", "span1_text": "a", "span2_text": "b", "span2_index": 1, "idx": 0}
    assert not chain_of(WscSimple(correct_referent_only=True)).build(row, 0, dropped)
    assert sum(dropped.values()) == 1


def test_a_filter_may_return_numpys_boolean():
    chain = chain_of(own.prefixed)
    step = chain.built[0]
    for value in (True, np.bool_(True)):
        object.__setattr__(step, "call", lambda example, value=value: value)
        assert chain.build(ROW, 0, Counter()) == [ROW]
    object.__setattr__(step, "call", lambda example: np.bool_(False))
    assert chain.build(ROW, 0, Counter()) == []


def test_the_first_that_takes_rng_and_all_after_it_wait_until_reading():
    chain = chain_of(own.prefixed, own.shuffled, own.not_third)
    assert [[step.place for step in steps] for steps in (chain.built, chain.read)] == [[0], [1, 2]]
    assert chain.takes == {"rng", "number"}
    (example,) = chain.build(ROW, 0, Counter())
    assert example["inputs"] == "say: " + ROW["inputs"]
    assert sorted(chain.when_read(example, 0, 5)["inputs"].split()) == sorted(example["inputs"].split())
    assert chain.when_read(example, 2, 5) is None


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_randomness_follows_from_the_key_alone(key, other):
    first, again = chain_of(own.shuffled), chain_of(own.shuffled)
    assert first.when_read(dict(ROW), 0, other) is not None  # draws before it change nothing
    assert first.when_read(dict(ROW), 0, key) == again.when_read(dict(ROW), 7, key)


def test_keys_and_places_give_other_randomness():
    chain = chain_of(own.shuffled)
    assert len({chain.when_read(dict(ROW), 0, key)["inputs"] for key in range(20)}) > 15
    twice = chain_of(own.shuffled, own.shuffled)
    once = [chain.when_read(dict(ROW), 0, key)["inputs"] for key in range(20)]
    again = [chain.when_read({**ROW, "inputs": text}, 0, key)["inputs"] for key, text in enumerate(once)]
    assert [twice.when_read(dict(ROW), 0, key)["inputs"] for key in range(20)] != again  # not the same draws twice


def test_the_settings_of_the_run_are_there_by_name():
    (found,) = chain_of(own.lengths_told, inputs_length=30, targets_length=4).build(ROW, 0, Counter())
    assert found["inputs"] == "30 4 a b c d e f g"
    (found,) = chain_of(own.lengths_told).build(ROW, 0, Counter())
    assert found["inputs"].startswith("None None")


def failing(*preprocessors, row=ROW, number=3):
    with pytest.raises(PreprocessorError) as caught:
        chain_of(*preprocessors).build(dict(row), number, Counter())
    return str(caught.value)


def test_an_error_names_task_function_example_place_and_example():
    said = failing(own.prefixed, own.fails)
    assert said.startswith("task 'words', preprocessor fails, example 3: KeyError: 'nothing' (at ")
    lines = Path(own.__file__).read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if 'example["nothing"]' in text)
    assert f"{own.__file__}:{line}: return " in said
    assert said.endswith("The example is {'inputs': 'say: a b c d e f g', 'targets': 'x'}")


def test_an_error_of_a_generator_is_met_where_it_comes():
    said = failing(own.fails_late)
    assert "preprocessor fails_late, example 3: RuntimeError: after the first (at " in said


def test_an_error_of_our_own_preprocessors_says_the_fix_and_no_place_in_them():
    said = failing(Rekey({"inputs": "input"}))
    assert "Rekey(key_map={'inputs': 'input'}), example 3: no field 'input'; the fields are 'inputs', 'targets'" in said
    assert "Name one that exists (such as 'inputs')" in said
    assert ".py:" not in said


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (own.nothing, "it returned None, and must return a dict .*; is a `return` missing"),
        (own.a_tuple, "it returned .* of type tuple, and must return a dict"),
        (own.texts, "among its examples is 'a' of type str: each must be a dict"),
    ],
)
def test_what_is_no_answer_is_said(function, said):
    with pytest.raises(PreprocessorError, match=said):
        chain_of(function).build(dict(ROW), 0, Counter())


def test_long_examples_are_shortened():
    row = {"inputs": "x" * 10_000, "targets": list(range(1000)), **{f"field {i}": i for i in range(50)}}
    assert len(failing(own.fails, row=row)) < 1500
    assert shown_example({"a": np.arange(1000)}).startswith("{'a': [0, 1, 2,")


def test_several_examples_when_read_are_an_error_that_says_where_to_put_it():
    chain = chain_of(own.shuffled, own.doubled)
    with pytest.raises(
        PreprocessorError, match=r"doubled, example 1: it gave 2 examples when read, .* must stand before"
    ):
        chain.when_read(dict(ROW), 1, 0)
    with pytest.raises(PreprocessorError, match="it gave 2 examples when read"):
        chain_of(own.both).when_read(dict(ROW), 1, 0)


def test_rows_are_preprocessed_at_a_prompt():
    task = task_of(own.not_third, own.doubled, own.now_and_then)
    found = [list(preprocessed(task, BYTES, [dict(ROW)] * 6, key)) for key in range(3)]
    assert found[0] != found[1] and all(0 < len(one) < 8 for one in found)
    assert found[0] == list(preprocessed(task, BYTES, [dict(ROW)] * 6))


def test_a_function_that_leaves_python_is_an_error_of_its_own():
    with pytest.raises(PreprocessorError, match=r"preprocessor leaves, example 4: SystemExit: 3"):
        chain_of(own.leaves).build(ROW, 4, Counter())
