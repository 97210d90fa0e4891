import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as np_st

from spanloom.pipeline.packing import Packs, best_fit, first_fit, next_fit, pack_windows

SLOTS = (12, 5)


@st.composite
def windows(draw, slots=SLOTS, max_windows=3, max_examples=40):
    shape = draw(st.integers(1, max_windows)), draw(st.integers(1, max_examples))
    return np.stack([draw(np_st.arrays(np.int64, shape, elements=st.integers(0, slot))) for slot in slots], axis=-1)


def log_normal(examples: int, median: float, seed: int) -> np.ndarray:
    """(examples, 2) lengths, inputs of median 180 and targets as asked for, sigma 0.9, that fit 1024 / 256."""
    noise = np.random.default_rng(seed).standard_normal((2 * examples, 2))
    lengths = np.maximum(np.rint(np.array([180, median]) * np.exp(0.9 * noise)), 1).astype(np.int64)
    return lengths[(lengths <= (1024, 256)).all(axis=1)][:examples]


def used(packs: Packs, lengths_NxF: np.ndarray) -> np.ndarray:
    """(P, F) sum of the lengths in each row."""
    return np.array([lengths_NxF[part].sum(axis=0) for part in np.split(packs.examples, packs.offsets[1:-1])])


@pytest.mark.short
@settings(deadline=None)
@given(windows(), st.none() | st.integers(1, 4))
def test_rows_hold_every_example_once_and_no_more_than_fits(lengths, max_segments):
    for window, packs in zip(lengths, pack_windows(lengths, SLOTS, max_segments), strict=True):
        assert sorted(packs.examples.tolist()) == list(range(len(window)))
        assert (used(packs, window) <= SLOTS).all()
        counts = np.diff(packs.offsets)
        assert counts.min() >= 1 and counts.max() <= (max_segments or len(window))
        for part in np.split(packs.examples, packs.offsets[1:-1]):
            assert (np.diff(part) > 0).all()


@settings(deadline=None, max_examples=300)
@given(windows(), st.none() | st.integers(1, 4))
def test_never_more_rows_than_first_fit_and_next_fit(lengths, max_segments):
    room = SLOTS if max_segments is None else (*SLOTS, max_segments)
    limited = lengths if max_segments is None else np.pad(lengths, ((0, 0), (0, 0), (0, 1)), constant_values=1)
    ours = [len(packs) for packs in pack_windows(lengths, SLOTS, max_segments)]
    for plan in (first_fit, next_fit):
        assert (ours <= plan(limited, room).max(axis=1) + 1).all()


def test_a_window_where_best_fit_alone_would_lose():
    rng = np.random.default_rng(0)
    lengths = np.stack([rng.integers(1, 13, (400, 12)), rng.integers(1, 6, (400, 12))], axis=-1)
    best, first = (plan(lengths, SLOTS).max(axis=1) + 1 for plan in (best_fit, first_fit))
    assert (best > first).any() and (best < first).any()
    ours = np.array([len(packs) for packs in pack_windows(lengths, SLOTS)])
    np.testing.assert_array_equal(ours, np.minimum(best, first))


@settings(deadline=None)
@given(windows(max_windows=4))
def test_a_window_is_packed_alike_whatever_is_planned_with_it(lengths):
    for window, packs in zip(lengths, pack_windows(lengths, SLOTS), strict=True):
        (alone,) = pack_windows(window[None], SLOTS)
        np.testing.assert_array_equal(alone.examples, packs.examples)
        np.testing.assert_array_equal(alone.offsets, packs.offsets)


def plain_fit(lengths: list[tuple[int, int]], rule: str) -> list[int]:
    """First-fit and next-fit, row by row, as any textbook has them."""
    room: list[list[int]] = []
    chosen = []
    for example in lengths:
        rows = range(len(room)) if rule == "first" else range(max(len(room) - 1, 0), len(room))
        fitting = [row for row in rows if all(a >= b for a, b in zip(room[row], example, strict=True))]
        if not fitting:
            room.append(list(SLOTS))
        row = fitting[0] if fitting else len(room) - 1
        room[row] = [a - b for a, b in zip(room[row], example, strict=True)]
        chosen.append(row)
    return chosen


@settings(deadline=None)
@given(windows())
def test_first_fit_and_next_fit_are_what_they_are_called(lengths):
    for rule, plan in (("first", first_fit), ("next", next_fit)):
        assert plan(lengths, SLOTS).tolist() == [plain_fit(list(map(tuple, w.tolist())), rule) for w in lengths]


@pytest.mark.parametrize("median", [15, 40, 60])
def test_at_least_97_percent_of_the_binding_slots_are_used(median):
    lengths = log_normal(4 * 4096, median, seed=1)
    rows = sum(len(packs) for packs in pack_windows(lengths.reshape(4, 4096, 2), (1024, 256)))
    shares = lengths.sum(axis=0) / (rows * np.array([1024, 256]))
    assert shares.max() >= 0.97
    if median == 15:
        assert shares[0] >= 0.97
    for plan in (first_fit, next_fit):
        assert rows < (plan(lengths.reshape(4, 4096, 2), (1024, 256)).max(axis=1) + 1).sum()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.uint64])
def test_stored_types_pack_alike(dtype):
    lengths = log_normal(500, 40, 4)[None]
    (expected,), (packs,) = pack_windows(lengths, (1024, 256)), pack_windows(lengths.astype(dtype), (1024, 256))
    np.testing.assert_array_equal(packs.examples, expected.examples)


def test_one_feature_and_long_slots():
    lengths = np.random.default_rng(0).integers(1, 70_000, (1, 300, 1))
    (packs,) = pack_windows(lengths, (70_001,))
    assert sorted(packs.examples.tolist()) == list(range(300))
    assert (used(packs, lengths[0]) <= 70_001).all()
    assert lengths.sum() / 70_001 / len(packs) > 0.95


@pytest.mark.short
def test_nothing_packs_into_no_rows():
    (packs,) = pack_windows(np.zeros((1, 0, 2), int), SLOTS)
    assert len(packs) == 0 and packs.examples.tolist() == []
    assert pack_windows(np.zeros((0, 5, 2), int), SLOTS) == ()


@pytest.mark.short
def test_rows_of_a_part_are_those_of_the_whole():
    (packs,) = pack_windows(log_normal(200, 40, 0)[None], (1024, 256))
    parts = [packs.rows(first, min(first + 7, len(packs))) for first in range(0, len(packs), 7)]
    np.testing.assert_array_equal(np.concatenate([part.examples for part in parts]), packs.examples)
    assert all(part.offsets[0] == 0 and part.offsets[-1] == len(part.examples) for part in parts)
    assert len(packs.rows(3, 3)) == 0


def test_rows_do_not_come_by_length():
    (packs,) = pack_windows(log_normal(4096, 40, 2)[None], (1024, 256))
    counts = np.diff(packs.offsets)
    quarters = [part.mean() for part in np.array_split(counts, 4)]
    assert max(quarters) < 1.2 * min(quarters)


@pytest.mark.short
def test_the_rows_are_fixed_for_good():
    lengths = np.array([[[9, 1], [3, 1], [6, 2], [6, 3], [1, 5], [11, 0]]])
    (packs,) = pack_windows(lengths, SLOTS)
    assert [part.tolist() for part in np.split(packs.examples, packs.offsets[1:-1])] == [[4, 5], [2, 3], [0, 1]]


@pytest.mark.short
def test_what_does_not_fit_is_counted():
    with pytest.raises(ValueError, match=r"2 of 3 examples .* slots \(12, 5\); the longest have \(13, 6\)"):
        pack_windows([[[13, 1], [1, 1], [13, 6]]], SLOTS)
    for lengths, slots, segments, message in (
        (np.ones((1, 2, 3), int), SLOTS, None, "of shape"),
        (np.ones((1, 2, 2)), SLOTS, None, "must be integers"),
        (-np.ones((1, 2, 2), int), SLOTS, None, "lengths must be 0 or more"),
        (np.ones((1, 2, 2), int), (0, 5), None, "must be 1 or more"),
        (np.ones((1, 2, 2), int), SLOTS, 0, "must be 1 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            pack_windows(lengths, slots, segments)
