import numpy as np
import pytest
from pipeline_data import column_of

SHARDS = ([[5, 6, 7], [], [8]], [[9, 10]], [[], [11, 12, 13, 14]])
FLAT = np.arange(5, 15)
LENGTHS = [3, 0, 1, 2, 0, 4]


@pytest.fixture(params=["one shard", "three shards", "one and an empty one"])
def column(request):
    if request.param == "one shard":
        return column_of([row for shard in SHARDS for row in shard])
    return column_of(*SHARDS) if request.param == "three shards" else column_of([], *SHARDS, [])


@pytest.mark.short
def test_any_slice_is_that_of_the_flat_stream(column):
    assert (column.num_tokens, column.num_rows) == (10, 6)
    for start in range(11):
        for stop in range(start, 11):
            np.testing.assert_array_equal(column.slice(start, stop), FLAT[start:stop])


def test_slices_outside_are_refused(column):
    for start, stop in ((-1, 2), (3, 2), (0, 11)):
        with pytest.raises(IndexError):
            column.slice(start, stop)


def test_windows_equal_slices(column):
    starts = np.array([7, 0, 2, 5, 5])
    np.testing.assert_array_equal(column.windows(starts, 3), FLAT[starts[:, None] + np.arange(3)])
    assert column.windows(starts, 3).dtype == np.uint16


def test_rows_lengths_and_where_they_start(column):
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    np.testing.assert_array_equal(column.lengths(), LENGTHS)
    np.testing.assert_array_equal(column.row_starts(np.arange(7)), starts)
    for row in range(6):
        np.testing.assert_array_equal(column.row(row), FLAT[starts[row] : starts[row + 1]])


def test_an_empty_column():
    column = column_of()
    assert (column.num_tokens, column.num_rows) == (0, 0)
    assert len(column.slice(0, 0)) == len(column.lengths()) == 0
    np.testing.assert_array_equal(column.row_starts(np.array([0])), [0])


def test_starts_of_rows_that_follow_one_another():
    rows = [[1, 2], [3], [4, 5, 6], [7], [8, 9]]
    for column in (column_of(rows), column_of(rows[:1], rows[1:4], rows[4:]), column_of([], rows, [])):
        for first in range(6):
            for stop in range(first, 6):
                assert column.starts_between(first, stop).tolist() == [0, 2, 3, 6, 7, 9][first : stop + 1]
