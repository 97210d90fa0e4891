import pytest

from spanloom.tasks.prompts.answers import answer_number, cached_prompt, number_of, with_answers
from spanloom.tasks.templates import FieldError


def test_the_number_of_an_answer():
    assert number_of(" b\n", ["a", "b", "b"]) == 1 and number_of("c", ["a"]) == -1
    assert answer_number("yes ", {"answer_choices": ["no", "yes"]}) == 1


def test_an_example_without_choices_has_no_label():
    assert with_answers("a", "b", None) == {"inputs": "a", "targets": "b"}


def test_p3s_rows_keep_their_texts_and_choices():
    row = {
        "inputs": [1, 2],
        "inputs_pretokenized": "A film. Good? ",
        "targets": [3, 1],
        "targets_pretokenized": "\nyes",
        "answer_choices": ["no", "yes"],
    }
    assert cached_prompt(row) == {
        "inputs": "A film. Good?",
        "targets": "yes",
        "answer_choices": ["no", "yes"],
        "label": 1,
    }
    assert cached_prompt({**row, "targets_pretokenized": " "}) is False
    with pytest.raises(FieldError, match="no text inputs_pretokenized in a row of the cache, whose fields are inputs"):
        cached_prompt({"inputs": [1]})
