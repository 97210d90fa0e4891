import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import record


@pytest.mark.short
def test_a_row_for_each_answer_or_one_without():
    passage = "It ended.\n@highlight\nIt began\n@highlight\nend"
    example = {"passage": passage, "query": "@placeholder?", "entities": ["A", "B"], "answers": ["B", "A"], "idx": 5}
    rows = list(record(example))
    assert [row["targets"] for row in rows] == ["B", "A"] and rows[0]["idx"] == 5
    assert rows[0]["inputs"] == "record query: @placeholder? entities: A, B passage: It ended. It began. end"
    assert [row["targets"] for row in record(example | {"answers": []})] == ["<unk>"]
    with pytest.raises(FieldError, match="field 'entities' is str"):
        list(record(example | {"entities": "A"}))
