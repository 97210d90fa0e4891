import pytest

from spanloom.evaluation.metrics.answers import coqa_f1, span_squad, squad, trivia_qa


def test_the_best_answer_counts_without_case_punctuation_and_articles():
    found = squad([["New York City", "NYC"], ["the red house"]], ["nyc!", "A red, big house"])
    assert found == pytest.approx({"em": 50.0, "f1": (100 + 100 * 2 * 2 / (2 + 3)) / 2})


def test_a_single_answer_is_no_list_of_letters():
    assert squad(["cat"], ["cat"]) == {"em": 100.0, "f1": 100.0} == coqa_f1(["cat"], ["cat"]) | {"em": 100.0}


def test_punctuation_parts_words_in_trivia_qa_alone():
    assert squad([["it's"]], ["its"])["em"] == 100.0 and trivia_qa([["it's"]], ["its"])["em"] == 0.0
    assert trivia_qa([["well-known"]], ["well known"])["em"] == 100.0


def test_empty_answers():
    assert squad([[""]], [""]) == {"em": 100.0, "f1": 0.0} and coqa_f1([[""]], ["the"]) == {"f1": 100.0}
    with pytest.raises(ValueError, match="question 1 has no answers; one that cannot be answered has the answer ''"):
        squad([["a"], []], ["a", "b"])


def test_places_are_looked_up_in_the_context():
    target = {"answers": ["c d"], "context": "a b; c d"}
    assert span_squad([target] * 4, ["start: 2 end: 3", "start: 2", "start: two end: 3", "2 3"])["em"] == 25.0
    with pytest.raises(ValueError, match="targets must be dicts with 'context'"):
        span_squad(["c d"], ["start: 2 end: 3"])
