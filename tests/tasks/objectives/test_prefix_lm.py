import numpy as np
import pytest

from spanloom.tasks.objectives.prefix_lm import least_prefix, prefix_lengths
from spanloom.tasks.randomness import hash64

pytestmark = pytest.mark.short


@pytest.mark.parametrize("length", [2, 3, 10, 511])
@pytest.mark.parametrize("density", [0.5, 0.25, 0.1])
def test_every_possible_prefix_is_equally_likely(length, density):
    least = least_prefix(length, density)
    possible = length - least
    prefixes = prefix_lengths(hash64(7, np.arange(400 * possible)), length, density)
    counts = np.bincount(prefixes, minlength=length + 1)
    assert counts[:least].sum() == counts[length] == 0
    assert ((counts[least:length] - 400) ** 2 / 400).sum() < possible + 5 * np.sqrt(2 * possible) + 10


def test_the_mean_share_written_is_the_density():
    for density in (0.5, 0.25, 0.1):
        prefixes = prefix_lengths(hash64(1, np.arange(20_000)), 400, density)
        assert abs(1 - prefixes.mean() / 400 - density) < 0.01


def test_one_token_is_written_after_nothing():
    assert prefix_lengths(hash64(1, np.arange(3)), 1, 0.5).tolist() == [0, 0, 0]
