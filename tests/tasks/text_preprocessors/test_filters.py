import numpy as np
import pytest

from spanloom.tasks.templates import FieldError
from spanloom.tasks.text_preprocessors import Deduplicate, FilterByStringLength, FilterByTokenLength


@pytest.mark.short
def test_by_length():
    keep = FilterByStringLength("t", 2, 3)
    assert [keep({"t": text}) for text in ("", "a", "ü", "abc", "üü")] == [False, False, True, True, False]
    tokens = FilterByTokenLength({"inputs": 1}, {"inputs": 2, "targets": 1})
    assert tokens({"inputs": [1], "targets": []}) and not tokens({"inputs": [], "targets": []})
    assert not tokens({"inputs": [1, 2], "targets": [1, 2]})
    with pytest.raises(FieldError, match="no field 't'"):
        keep({})


@pytest.mark.short
def test_the_first_of_equal_examples_stays():
    rows = [{"inputs": i, "targets": t, "n": n} for n, (i, t) in enumerate(["ab", "ab", "ba", "ab", ("a", "b'")])]
    assert [row["n"] for row in Deduplicate()(rows)] == [0, 2, 4]
    assert [row["n"] for row in Deduplicate(("inputs",))(rows)] == [0, 2]
    assert Deduplicate().key({"inputs": "a", "targets": "bc"}) != Deduplicate().key({"inputs": "ab", "targets": "c"})
    long = np.arange(5000)
    other = np.where(long == 2500, 0, long)
    rows = [{"inputs": ids} for ids in (long, other, long.tolist())]
    assert [one["inputs"][2500] for one in Deduplicate(("inputs",))(rows)] == [2500, 0]
