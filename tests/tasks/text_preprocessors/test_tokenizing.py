from collections import Counter

import pytest

from spanloom.settings.feature import Feature
from spanloom.settings.objectives import Supervised
from spanloom.settings.task import PairFiles, Task
from spanloom.settings.vocabulary import Bytes
from spanloom.tasks.preprocessing import PreprocessorError, Preprocessors
from spanloom.tasks.text_preprocessors import AppendEos, Tokenize, TruncateInputsLeft
from spanloom.vocabularies.build import build

pytestmark = pytest.mark.short
BYTES = build(Bytes())
EXAMPLE = {"inputs": "abc", "targets": "d", "more": 1}


def made(*preprocessors, **more):
    task = Task("t", PairFiles(), objective=Supervised(), preprocessors=preprocessors, **more)
    (found,) = Preprocessors(task, BYTES).build(dict(EXAMPLE), 0, Counter())
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in found.items()}


def test_text_becomes_ids_and_stays_beside_them():
    assert made(Tokenize()) == {
        "inputs": [100, 101, 102], "targets": [103], "more": 1,
        "inputs_pretokenized": "abc", "targets_pretokenized": "d",
    }  # fmt: skip
    assert made(Tokenize(("inputs",), copy_pretokenized=False)) == {**EXAMPLE, "inputs": [100, 101, 102]}


def test_preprocessors_of_ids_come_after_it():
    found = made(Tokenize(), TruncateInputsLeft(2), AppendEos())  # features without an end of sequence take these
    assert (found["inputs"], found["targets"]) == ([101, 102, 1], [103, 1])


def test_each_feature_is_written_in_its_own_vocabulary(monkeypatch):
    other = build(Bytes())
    monkeypatch.setattr(other, "encode", lambda text: BYTES.encode(text.upper()), raising=False)
    monkeypatch.setattr("spanloom.tasks.feature_vocabularies.build", lambda settings: other)
    found = made(Tokenize(), features=(Feature("inputs", Bytes("google")), Feature("targets")))
    assert (found["inputs"], found["targets"]) == ([68, 69, 70], [103])


def test_a_field_that_is_no_feature_is_named():
    with pytest.raises(PreprocessorError, match=r"no feature 'input'; the features are 'inputs', 'targets'; did"):
        made(Tokenize(("input",)))
