import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from spanloom.pipeline.drawn import DrawBlocks, Drawn

pytestmark = pytest.mark.short
SIZE = 8


class Counted:
    """Draw i is example i of task i modulo 3; there are 50."""

    def __init__(self):
        self.asked = []

    def find(self, first, count):
        self.asked.append((first, count))
        draws = np.arange(first, min(first + count, 50))
        lengths = np.stack([draws, draws + 1], axis=1)
        return Drawn(draws % 3, draws, draws.astype(np.uint64), lengths, lengths * 10)


def same(found, draws):
    expected = Counted().find(0, 50).chosen(np.asarray(draws))
    for name in ("tasks", "examples", "keys", "lengths", "starts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("draws", [[3], [5, 1, 5], [7, 8], [49, 0, 20, 9, 48], list(range(50))])
def test_draws_are_found_by_number_wherever_blocks_end(draws):
    same(DrawBlocks(Counted(), SIZE).find(np.array(draws)), draws)


def test_a_block_is_found_once_and_the_last_two_are_kept():
    draws = Counted()
    blocks = DrawBlocks(draws, SIZE)
    for number in (0, 1, 0, 1, 2, 2, 1, 0):
        blocks.block(number)
    assert draws.asked == [(0, SIZE), (SIZE, SIZE), (2 * SIZE, SIZE), (0, SIZE)]


def test_several_threads_may_ask_at_once():
    blocks, together = DrawBlocks(Counted(), SIZE), threading.Barrier(4)

    def ask(seed):
        together.wait()
        for draws in np.random.default_rng(seed).integers(50, size=(2000, 3)):
            same(blocks.find(draws), draws)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(4)))
    finally:
        sys.setswitchinterval(interval)
