import numpy as np
import pytest

from spanloom.pipeline.order import TrainingOrder, heldout_noise_keys, spread


@pytest.mark.short
@pytest.mark.parametrize("num_examples", [1, 2, 7, 100])
def test_each_epoch_takes_every_example_once(num_examples):
    epochs, examples = TrainingOrder(num_examples, 0, "task").draws(0, 5 * num_examples)
    for epoch in range(5):
        assert sorted(examples[epochs == epoch]) == list(range(num_examples))


def test_epochs_seeds_and_tasks_shuffle_differently():
    orders = [TrainingOrder(50, seed, task) for seed in (0, 1) for task in ("a", "b")]
    seen = {tuple(order.draws(first, 50)[1]) for order in orders for first in (0, 50, 100)}
    assert len(seen) == 12


def test_draws_are_those_of_any_split():
    order = TrainingOrder(13, 3, "task")
    whole = order.draws(0, 100)
    for first, count in ((0, 1), (5, 20), (12, 2), (26, 0), (99, 1)):
        for part, all_of_it in zip(order.draws(first, count), whole, strict=True):
            np.testing.assert_array_equal(part, all_of_it[first : first + count])


def test_a_position_far_away_is_found_without_counting_up_to_it():
    epochs, examples = TrainingOrder(1000, 0, "task").draws(10**15, 4)
    assert epochs.tolist() == [10**12] * 4
    assert len(set(examples.tolist())) == 4


def test_noise_keys_differ_by_everything_that_keys_them():
    epochs, examples = np.divmod(np.arange(1000), 100)
    keys = [TrainingOrder(100, seed, task).noise_keys(epochs, examples) for seed in (0, 1) for task in ("a", "b")]
    assert len(np.unique(np.concatenate([*keys, heldout_noise_keys(np.arange(1000))]))) == 5000


def test_the_order_is_fixed_for_good():
    epochs, examples = TrainingOrder(10, 1, "task").draws(7, 6)
    assert epochs.tolist() == [0, 0, 0, 1, 1, 1]
    assert examples.tolist() == [1, 9, 0, 2, 3, 9]
    keys = TrainingOrder(10, 1, "task").noise_keys(epochs, examples)
    assert keys[:2].tolist() == [72819649700159727, 12361187480828142083]


@pytest.mark.short
@pytest.mark.parametrize(("most", "count"), [(1, 1), (1, 9), (4, 9), (80, 499), (499, 499), (50, 10**10)])
def test_examples_that_are_spread_are_one_of_each_part_however_they_are_asked_for(most, count):
    examples = spread(np.arange(most), most, count)
    assert len(examples) == most
    assert all(part * count // most <= one < (part + 1) * count // most for part, one in enumerate(examples.tolist()))
    np.testing.assert_array_equal(examples[most // 2 :], spread(np.arange(most // 2, most), most, count))


@pytest.mark.short
def test_examples_that_are_spread_are_of_all_kinds_whether_these_take_turns_or_follow_one_another():
    examples = spread(np.arange(64), 64, 640)
    assert {*(examples % 2).tolist()} == {*(examples // 320).tolist()} == {0, 1}
    assert spread(np.arange(4), 4, 100).tolist() == [5, 41, 56, 79], "the same for good"
