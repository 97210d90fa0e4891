import numpy as np
import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import fields

EXAMPLE = {
    "a": "text",
    "n": 3,
    "f": 0.5,
    "none": None,
    "l": ["x", "y"],
    "ids": np.array([1, 2]),
    "in": {"b": {"c": "deep"}},
}


@pytest.mark.short
def test_values_of_their_kinds():
    assert fields.text(EXAMPLE, "in/b/c") == fields.text(EXAMPLE, "in.b.c") == "deep"
    assert fields.texts(EXAMPLE, "l") == ["x", "y"]
    assert [fields.written(EXAMPLE, name) for name in ("a", "n", "f")] == ["text", "3", "0.5"]
    assert fields.wholes(EXAMPLE, "ids") == [1, 2] and fields.wholes(EXAMPLE, "n") == [3]
    assert fields.whole({"n": np.int64(4)}, "n") == 4 and fields.number({"n": np.float32(0.5)}, "n") == 0.5


@pytest.mark.short
@pytest.mark.parametrize(
    ("read", "name", "message"),
    [
        (fields.text, "b", "no field 'b'; the fields are 'a'"),
        (fields.text, "in/b/d", "no field 'in.b.d'; the fields are 'in.b.c'"),
        (fields.text, "n", r"field 'n' is int \(3\), not text"),
        (fields.text, "none", "field 'none' is null, not text"),
        (fields.texts, "a", "not a list of texts"),
        (fields.texts, "ids", "not a list of texts"),
        (fields.written, "l", "not text or a number"),
        (fields.number, "a", "not a number"),
        (fields.whole, "f", "not a whole number"),
        (fields.wholes, "l", "not a list of whole numbers"),
    ],
)
def test_errors_name_field_and_kind(read, name, message):
    with pytest.raises(FieldError, match=message):
        read(EXAMPLE, name)
