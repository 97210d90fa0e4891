"""Rows that nothing trained are told from trained ones, and nothing is said where the weights cannot tell.

The matrices are made as training leaves them: random rows, of which used ones went their own ways, sentinels together;
the others stay where they were (an embedding) or move as one (a head).
"""

import numpy as np
import pytest

from spanloom.conversion.untrained_rows import Known, known_of_bytes, known_of_pieces, untrained

SIZE, SENTINELS = 1200, 100
IDS = tuple(range(SIZE - 1, SIZE - 1 - SENTINELS, -1))


def matrix(seed: int, rows: int, width: int, used: int, *, moved: float = 1.0, head: bool = False) -> np.ndarray:
    draw = np.random.default_rng(seed)
    found = draw.normal(0, 1, (rows, width))
    trained = [*range(3, SIZE - SENTINELS), *IDS[:used]]
    found[trained] += draw.normal(0, moved, (len(trained), width)) * draw.uniform(0.3, 2, (len(trained), 1))
    found[trained] += draw.normal(0, 0.7 * moved, width)
    found[list(IDS[:used])] += draw.normal(0, moved, width)
    return (found + draw.normal(0, 2, width) if head else found).astype(np.float32)


def look(array: np.ndarray, *others: np.ndarray, used: int = SENTINELS) -> tuple[int, ...] | None:
    ids = IDS[:used]
    known = known_of_pieces(SIZE, len(array), IDS, ids)
    return untrained([lambda at, one=one: one[at] for one in (array, *others)], known, ids)


@pytest.mark.parametrize("padding", [12, 28, 84])
@pytest.mark.parametrize("width", [512, 1024])
def test_exactly_the_rows_that_were_never_used(padding, width):
    for seed, used in enumerate((0, 1, 28, 100)):
        embedding = matrix(seed, SIZE + padding, width, used)
        head = matrix(seed + 50, SIZE + padding, width, used, head=True)
        assert look(embedding, head) == IDS[used:], used
        assert look(head) == IDS[used:], used


def test_no_false_alarm_in_many_draws():
    told = 0
    for seed in range(40):
        array = matrix(seed, SIZE + 12, 256, 28, head=bool(seed % 2))
        assert look(array, used=28) in (None, ())
        found = look(array, used=30)
        assert found in (None, IDS[28:30])
        told += found is not None
    assert told > 36


def test_a_narrow_model_is_not_spoken_of_where_chance_could_be_mistaken():
    for seed in range(20):
        assert look(matrix(seed, SIZE + 12, 16, 28), used=28) in (None, ())


def test_trained_in_one_matrix_is_trained():
    """An objective without sentinels in its targets trains their embedding alone."""
    embedding, head = matrix(0, SIZE + 28, 128, 100), matrix(1, SIZE + 28, 128, 0, head=True)
    assert look(embedding, head) == look(head, embedding) == ()


def test_weights_that_cannot_tell():
    assert look(matrix(0, SIZE + 28, 128, 100, moved=0.0)) is None, "random weights"
    assert look(matrix(0, SIZE + 5, 128, 100)) is None, "too few rows that nothing uses"
    broken = matrix(0, SIZE + 28, 128, 100)
    broken[5:1000] = np.nan
    assert look(broken) is None
    assert untrained([], Known(range(20), [range(20, 60)]), (3,)) is None


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_padding_that_is_equal_to_the_last_bit(value):
    """As it is after a resize that fills with zeros or a mean."""
    array = matrix(0, SIZE + 28, 128, 28)
    array[list(IDS[28:])] = array[SIZE:] = value
    assert look(array) == IDS[28:]


def test_an_id_beyond_the_vocabulary_is_untrained():
    array = matrix(0, SIZE + 28, 128, 100)
    ids = (SIZE + 3, SIZE + 4, SIZE - 1)
    known = known_of_pieces(SIZE, len(array), IDS, ids)
    assert untrained([lambda at: array[at]], known, ids) == ids[:2]


def test_sentinels_that_come_first_leave_ordinary_pieces():
    known = known_of_pieces(500, 512, range(3, 103), range(3, 30))
    assert min(known.ordinary[0]) == 103 and len(known.ordinary[0]) > 60
    assert list(known.idle) == list(range(500, 512))


def test_rows_of_bytes():
    known = known_of_bytes(range(259, 320))
    assert list(known.idle) == list(range(320, 360))
    assert {ord("e") + 3, ord(" ") + 3} <= set(known.ordinary[0])
