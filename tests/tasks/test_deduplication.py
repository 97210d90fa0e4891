import numpy as np
import pytest

from spanloom.tasks.deduplication import key_of, without_repeated_rows
from spanloom.tasks.read_report import BadInputError, ReadReport
from spanloom.tasks.rows import ROW, rows_of, unpack_row
from spanloom.tasks.templates import FieldError

pytestmark = pytest.mark.short


def test_fields_that_join_alike_are_not_alike():
    ours, theirs = {"inputs": "a", "targets": "bc"}, {"inputs": "ab", "targets": "c"}
    assert key_of(ours, ["inputs", "targets"]) != key_of(theirs, ["inputs", "targets"])


def test_long_arrays_are_compared_whole():
    long = np.arange(5000)
    other = np.where(long == 2500, 0, long)
    first, second, again = (key_of({"inputs": ids}, ["inputs"]) for ids in (long, other, long.tolist()))
    assert first == again != second


def test_a_missing_field_is_named():
    with pytest.raises(FieldError, match="no field 'title'"):
        key_of({"inputs": "a"}, ["title"])


def batches():
    texts = [("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("c", "3"), ("b", "1")]
    yield {"inputs": [text.encode() for text, _ in texts[:3]], "targets": [text.encode() for _, text in texts[:3]]}
    yield {"inputs": [text.encode() for text, _ in texts[3:]], "targets": [text.encode() for _, text in texts[3:]]}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(
    ("names", "left"),
    [(("inputs",), ["a", "b", "c"]), (("inputs", "targets"), ["a", "b", "a", "c"]), (("targets",), "aac")],
)
def test_the_first_of_rows_equal_in_some_fields_is_kept(names, left, pack):
    report = ReadReport()
    given = (rows_of(batch) if pack else batch for batch in batches())
    found = list(without_repeated_rows(given, names, report))
    if pack:
        inputs = [unpack_row(row)["inputs"] for batch in found for row in batch[ROW]]
    else:
        inputs = [text.decode() for batch in found for text in batch["inputs"]]
    assert inputs == list(left)
    assert report.skipped == {"repeated": 6 - len(left)}


def test_a_field_that_rows_lack_is_named():
    with pytest.raises(BadInputError, match=r"row 0, looking for repeated ones: no field 'input'; .* did you mean"):
        list(without_repeated_rows(batches(), ("input",), ReadReport()))
