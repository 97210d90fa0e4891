import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import Squad, squad_span_space_tokenized, trivia_qa


def squad(**changes):
    example = {"id": "7", "question": "Who?", "context": "It was Al.", "answers": {"text": ["Al", "al"]}}
    return example | changes


@pytest.mark.short
def test_squad():
    row = Squad()(squad())
    assert row["inputs"] == "question: Who ? context: It was Al . " and row["targets"] == "Al"
    assert row["answers"] == ["Al", "al"] and row["id"] == "7"
    assert Squad(include_context=False)(squad())["inputs"] == "squad trivia question: Who ? "
    with pytest.raises(FieldError, match="no answers"):
        Squad()(squad(answers={"text": []}))
    with pytest.raises(FieldError, match=r"no field 'answers.text'"):
        Squad()(squad(answers={}))


@pytest.mark.short
def test_spans_are_found_at_the_end_of_the_context_too():
    [row] = squad_span_space_tokenized(squad(context="It was Al"))
    assert row["targets"] == "start: 2 end: 2"
    [row] = squad_span_space_tokenized(squad(context="Al Al", answers={"text": ["Al Al"]}))
    assert row["targets"] == "start: 0 end: 1"
    assert list(squad_span_space_tokenized(squad(context="It was Alan"))) == []


@pytest.mark.short
def test_trivia_qa_takes_answers_literally():
    example = {"question": "q", "answer": {"normalized_aliases": ["c+", "b.b"]}, "entity_pages": {"wiki_context": []}}
    example["search_results"] = {"search_context": ["C+ or bxb", "b.b"]}
    rows = [(row["inputs"], row["targets"]) for row in trivia_qa(example)]
    assert rows == [("question: q context: C + or bxb", "c + "), ("question: q context: b . b", "b . b")]
    del example["search_results"], example["entity_pages"]
    with pytest.raises(FieldError, match="no field 'entity_pages'"):
        list(trivia_qa(example))
