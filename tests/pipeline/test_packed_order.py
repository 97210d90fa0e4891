import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.pipeline.packed_order import START, PackedOrder, WindowRow
from spanloom.tasks.randomness import hash64

SLOTS = (12, 5)


def lengths_of(first: int, count: int) -> np.ndarray:
    """Made-up lengths of draws, endless."""
    draws = np.arange(first, first + count)
    return np.stack([hash64(1, draws) % np.uint64(13), hash64(2, draws) % np.uint64(6)], axis=1).astype(np.int64)


def order_of(num_draws: int | None = None, window: int = 10) -> PackedOrder:
    return PackedOrder(lengths_of, SLOTS, num_draws=num_draws, window=window)


def rows_of(order: PackedOrder, position: WindowRow, counts: list[int]) -> tuple[list[list[int]], list[WindowRow]]:
    """The draws of each row, and the position before each step and after the last."""
    rows, positions = [], [position]
    for count in counts:
        packs, position = order.take(position, count)
        rows += [part.tolist() for part in np.split(packs.examples, packs.offsets[1:-1]) if len(packs)]
        positions.append(position)
    return rows, positions


@settings(deadline=None)
@given(st.integers(0, 250), st.integers(1, 40), st.lists(st.integers(0, 30), max_size=6))
def test_all_draws_come_once_however_rows_are_taken(num_draws, window, counts):
    order = order_of(num_draws, window)
    rows, positions = rows_of(order, START, [*counts, 10**6])
    assert sorted(draw for row in rows for draw in row) == list(range(num_draws))
    assert rows == rows_of(order_of(num_draws, window), START, [10**6])[0]
    assert order.take(positions[-1], 5)[1] == positions[-1] and len(order.take(positions[-1], 5)[0]) == 0
    assert all((lengths_of(0, 300)[row].sum(axis=0) <= SLOTS).all() for row in rows)


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=8), st.data())
def test_a_run_goes_on_from_any_position_as_if_it_never_stopped(counts, data):
    rows, positions = rows_of(order_of(), START, counts)
    step = data.draw(st.integers(0, len(counts) - 1))
    resumed, _ = rows_of(order_of(), positions[step], [sum(counts[step:])])
    assert resumed == rows[sum(counts[:step]) :]


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_hosts_together_have_the_rows_of_one(hosts):
    whole, after = order_of().take(WindowRow(3, 2), 24)
    share = len(whole) // hosts
    parts = []
    for host in range(hosts):
        packs, position = order_of().take(WindowRow(3, 2), 24)
        parts.append(packs.rows(host * share, (host + 1) * share))
        assert position == after
    np.testing.assert_array_equal(np.concatenate([part.examples for part in parts]), whole.examples)


@pytest.mark.short
def test_far_windows_cost_no_more():
    asked = []

    def recorded(first: int, count: int) -> np.ndarray:
        asked.append((first, count))
        return lengths_of(first, count)

    order = PackedOrder(recorded, SLOTS, window=10)
    packs, position = order.take(WindowRow(10**14, 1), 4)
    assert packs.examples.min() >= 10**15 and position.window >= 10**14
    order.take(position, 3)
    assert sum(count for _, count in asked) <= 160


@pytest.mark.short
def test_the_end_of_a_window_and_the_start_of_the_next_are_one_place():
    order = order_of()
    rows = len(order.take(START, 10**3)[0].rows(0, 1))
    first = order._plan(0)
    assert rows == 1
    assert order.take(WindowRow(0, len(first)), 5)[1] == order.take(WindowRow(1, 0), 5)[1]
    assert order.take(START, len(first))[1] == WindowRow(1, 0)


@pytest.mark.short
def test_positions_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"window 0 has .* rows, so that row 999 is no position in it"):
        order_of().take(WindowRow(0, 999), 1)
    with pytest.raises(ValueError, match="row -1 is no position"):
        order_of().take(WindowRow(0, -1), 1)
