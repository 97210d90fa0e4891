import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import FilterByStringLength, FilterByTokenLength


@pytest.mark.short
def test_by_length():
    keep = FilterByStringLength("t", 2, 3)
    assert [keep({"t": text}) for text in ("", "a", "ü", "abc", "üü")] == [False, False, True, True, False]
    tokens = FilterByTokenLength({"inputs": 1}, {"inputs": 2, "targets": 1})
    assert tokens({"inputs": [1], "targets": []}) and not tokens({"inputs": [], "targets": []})
    assert not tokens({"inputs": [1, 2], "targets": [1, 2]})
    with pytest.raises(FieldError, match="no field 't'"):
        keep({})
