import numpy as np
import pytest

from spanloom.tasks.deduplication import key_of, without_repeats
from spanloom.tasks.templates import FieldError

pytestmark = pytest.mark.short
ROWS = [{"inputs": i, "targets": t, "n": n} for n, (i, t) in enumerate(["ab", "ab", "ba", "ab", ("a", "b'")])]


def test_the_first_of_equal_examples_stays():
    assert [row["n"] for row in without_repeats(ROWS)] == [0, 2, 4]
    assert [row["n"] for row in without_repeats(ROWS, ["inputs"])] == [0, 2]
    assert [row["n"] for row in without_repeats(ROWS)] == [0, 2, 4], "nothing is remembered from pass to pass"


def test_fields_that_join_alike_are_not_alike():
    ours, theirs = {"inputs": "a", "targets": "bc"}, {"inputs": "ab", "targets": "c"}
    assert key_of(ours, ["inputs", "targets"]) != key_of(theirs, ["inputs", "targets"])


def test_long_arrays_are_compared_whole():
    long = np.arange(5000)
    other = np.where(long == 2500, 0, long)
    rows = [{"inputs": ids} for ids in (long, other, long.tolist())]
    assert [one["inputs"][2500] for one in without_repeats(rows, ["inputs"])] == [2500, 0]


def test_a_missing_field_is_named():
    with pytest.raises(FieldError, match="no field 'title'"):
        list(without_repeats(ROWS, ["title"]))
