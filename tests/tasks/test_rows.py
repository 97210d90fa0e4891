import datetime
import decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloom.tasks.rows import ROW, RowError, pack_row, packed_batches, rows_of, unpack_row

pytestmark = pytest.mark.short

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)
ROWS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), PLAIN)


@given(ROWS)
def test_rows_come_back(row):
    assert unpack_row(pack_row(row)) == row


@given(ROWS)
def test_the_order_of_fields_decides_nothing(row):
    def turned(value):
        if isinstance(value, dict):
            return {key: turned(value[key]) for key in reversed(value)}
        return [turned(one) for one in value] if isinstance(value, list) else value

    assert pack_row(turned(row)) == pack_row(row)


@pytest.mark.parametrize("dtype", ["<i8", "<u2", "<f4", "|u1", "|b1"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (2, 3), ()])
def test_arrays_come_back_and_may_be_written_to(dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    found = unpack_row(pack_row({"a": {"b": [array]}}))["a"]["b"][0]
    assert found.dtype == array.dtype and found.shape == array.shape
    np.testing.assert_array_equal(found, array)
    found[...] = 0


def test_arrays_of_other_byte_order_and_layout_are_the_same_bytes():
    array = np.arange(6, dtype="<i4").reshape(2, 3)
    assert pack_row({"a": array.astype(">i4")}) == pack_row({"a": array}) == pack_row({"a": np.asfortranarray(array)})


def test_kindred_values_become_plain_ones():
    row = {
        "a": (1, 2), "b": np.float32(0.5), "c": np.int64(3), "d": np.bool_(True), "e": np.array(["x", "yz"]),
        "f": datetime.date(2024, 2, 29), "g": datetime.datetime(2024, 2, 29, 1, 2), "h": decimal.Decimal("1.10"),
    }  # fmt: skip
    assert unpack_row(pack_row(row)) == {
        "a": [1, 2], "b": 0.5, "c": 3, "d": True, "e": ["x", "yz"], "f": "2024-02-29", "g": "2024-02-29T01:02:00",
        "h": "1.10",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": {"b": {1, 2}}}, "field 'a.b' is of type set"),
        ({"a": 2**64}, "field 'a' is a whole number of more than 64 bits"),
        ({1: "a"}, "the name of a field is 1"),
        ({"a": {None: 1}}, "the name of a field is None"),
        ({"a": "\ud800"}, r"half a character \(lone surrogate \\ud800\)"),
        ({"a": np.array([{1}], object)}, "field 'a' is of type set"),
    ],
)
def test_what_cannot_be_packed_is_named(row, said):
    with pytest.raises(RowError, match=said):
        pack_row(row)


def test_batches_are_of_bounded_size_and_name_the_row_that_fails():
    rows = [{"a": i} for i in range(3000)]
    batches = list(packed_batches(rows))
    assert [len(batch[ROW]) for batch in batches] == [1024, 1024, 952]
    assert [unpack_row(one) for batch in batches for one in batch[ROW]] == rows
    assert len(list(packed_batches({"a": "x" * 600_000} for _ in range(4)))) == 2
    with pytest.raises(RowError, match="row 1: field 'a'"):
        list(packed_batches([{"a": 1}, {"a": {1}}]))


def test_documents_become_rows():
    found = rows_of({"inputs": ["é".encode(), b"b"], "targets": [b"c", b""]})
    assert [unpack_row(one) for one in found[ROW]] == [{"inputs": "é", "targets": "c"}, {"inputs": "b", "targets": ""}]
    assert rows_of(found) is found


@pytest.mark.parametrize("depth", [300, 402, 600, 2000, 50_000])
def test_rows_that_are_nested_too_deeply_are_refused_and_others_come_back(depth):
    value = None
    for _ in range(depth):
        value = [value]
    if depth == 300:
        assert unpack_row(pack_row({"a": value})) == {"a": value}
        return
    with pytest.raises(RowError, match="nested too deeply"):
        pack_row({"a": value})
