from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.pipeline.mixing import LARGEST_DRAW, Schedule, schedule_of

rates_of_tasks = st.lists(
    st.one_of(
        st.just(0.0), st.just(1.0), st.floats(1e-12, 1e12), st.floats(1e-300, 1e300), st.integers(1, 64).map(float)
    ),
    min_size=1,
    max_size=40,
).filter(any)
seeds = st.integers(0, 2**32 - 1)
ADVERSARIAL = {
    "fibonacci above a trifle": [1e-9, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89],
    "just below powers of two": [1.999, 1e-6, 1, 1, 1, 1, 2, 4.001, 8, 16, 32],
    "as near to three as rates come": [1.9999999, 1e-9] + [2.0**k for k in range(1, 12)],
    "one large, many tiny": [1.0] + [1e-7] * 50,
    "geometric": [2.0**-k for k in range(40)],
    "thirds": [1, 1, 1],
    "skewed": [0.999, 0.001],
    "a thousand": list(np.exp(2 * np.random.default_rng(0).standard_normal(1000))),
    "a thousand alike": [1.0] * 1000,
}


def worst_deviation(schedule: Schedule, rates: np.ndarray, first: int, draws: int, window: int) -> np.ndarray:
    """(T,) how far each task's count is from its rate in the worst of all windows of this length."""
    tasks, _ = schedule.draws(first, draws)
    worst = np.zeros(len(rates))
    for task, share in enumerate(rates / rates.sum()):
        so_far = np.concatenate([[0], np.cumsum(tasks == task)])
        worst[task] = np.abs(so_far[window:] - so_far[:-window] - window * share).max()
    return worst


def bounds_of(schedule: Schedule, rates: np.ndarray) -> list[float]:
    """1 + sum of x / W over the inner nodes above each task but the root: what its count can be off at most."""
    weights = {~task: Fraction(rate) for task, rate in enumerate(rates.tolist())}
    for node, children in reversed([*enumerate(schedule.children.tolist())]):
        weights[node] = sum(weights[child] for child in children)
    above: dict[int, list[int]] = {0: []}
    for node, children in enumerate(schedule.children.tolist()):
        above |= {child: [*above[node], node] for child in children}
    tasks = [node for node in above if node < 0]
    return [1 + float(sum(weights[task] / weights[node] for node in above[task] if node)) for task in tasks]


@pytest.mark.short
@settings(deadline=None)
@given(rates_of_tasks, seeds, st.integers(0, 2**50), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_any_split_of_the_draws_gives_the_same_draws(rates, seed, first, counts):
    schedule = schedule_of(rates, seed)
    whole = schedule.draws(first, sum(counts))
    starts = np.cumsum([first, *counts[:-1]])
    parts = [schedule.draws(int(start), count) for start, count in zip(starts, counts, strict=True)]
    for number in range(2):
        np.testing.assert_array_equal(np.concatenate([part[number] for part in parts]), whole[number])


@pytest.mark.short
@settings(deadline=None)
@given(rates_of_tasks, seeds, st.integers(0, 2**50))
def test_what_was_drawn_before_is_what_counting_finds(rates, seed, first):
    schedule = schedule_of(rates, seed)
    counts = schedule.counts(first)
    assert counts.sum() == first and not counts[np.array(rates) == 0].any()
    for task, before in zip(*(array.tolist() for array in schedule.draws(first, 200)), strict=True):
        assert before == counts[task]
        counts[task] += 1
    np.testing.assert_array_equal(schedule.counts(first + 200), counts)


@settings(deadline=None)
@given(rates_of_tasks, seeds, st.integers(0, 2**50))
def test_a_draw_is_found_by_its_task_and_number(rates, seed, first):
    schedule = schedule_of(rates, seed)
    for i, (task, before) in enumerate(zip(*(array.tolist() for array in schedule.draws(first, 50)), strict=True)):
        assert schedule.draw_of(task, before) == first + i


@settings(deadline=None, max_examples=300)
@given(rates_of_tasks)
def test_the_bound_of_three_holds_for_all_rates(rates):
    bounds = bounds_of(schedule_of(rates), np.array(rates))
    assert all(bound < 3 for bound in bounds)
    assert len(bounds) == np.count_nonzero(rates) or not bounds  # one task alone has no node above it


@settings(deadline=None, max_examples=40)
@given(rates_of_tasks, seeds, st.integers(0, 2**50), st.integers(1, 3000))
def test_counts_of_any_window_are_less_than_three_off(rates, seed, first, window):
    rates = np.array(rates)
    assert worst_deviation(schedule_of(rates, seed), rates, first, 2 * window, window).max() < 3


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize(("seed", "first"), [(0, 0), (7, 2**40 + 12345)])
def test_ten_thousand_draws_keep_to_the_rates(name, seed, first):
    rates = np.array(ADVERSARIAL[name], float)
    schedule = schedule_of(rates, seed)
    shares = rates / rates.sum()
    worst = worst_deviation(schedule, rates, first, 25_000, 10_000)
    bounds = bounds_of(schedule, rates)
    assert (worst <= np.maximum(3, 0.01 * 10_000 * shares)).all()
    assert worst.max() < max(bounds) < 3


def test_levels_are_as_few_as_shannon_has_them():
    for rates in map(np.array, ADVERSARIAL.values()):
        schedule = schedule_of(rates)
        depth = {0: 0}
        for node, children in enumerate(schedule.children.tolist()):
            depth |= dict.fromkeys(children, depth[node] + 1)
        shares = rates / rates.sum()
        levels = np.array([depth[~task] for task in range(len(rates))])
        assert (levels <= np.ceil(-np.log2(shares) - 1e-9)).all()
        assert shares @ levels <= np.log2(len(rates)) + 1


@pytest.mark.short
def test_seeds_start_elsewhere_and_names_fix_the_order():
    rates = [1.0, 2.0, 1.0, 0.0, 1.0]
    names = ["b", "a", "c", "x", "d"]
    draws = [schedule_of(rates, seed, names).draws(0, 100)[0] for seed in range(4)]
    assert len({tuple(drawn.tolist()) for drawn in draws}) == 4
    order = [4, 3, 2, 1, 0]
    turned = schedule_of([rates[i] for i in order], 0, [names[i] for i in order]).draws(0, 100)[0]
    assert [names[order[i]] for i in turned] == [names[i] for i in draws[0]]


@pytest.mark.short
def test_one_task_takes_every_draw():
    schedule = schedule_of([0.0, 5.0], 3)
    tasks, before = schedule.draws(10**18, 4)
    assert tasks.tolist() == [1] * 4 and before.tolist() == list(range(10**18, 10**18 + 4))
    assert schedule.counts(9).tolist() == [0, 9] and schedule.draw_of(1, 7) == 7


@pytest.mark.short
def test_the_draws_are_fixed_for_good():
    tasks, before = schedule_of([3.0, 1.0, 0.5], 1).draws(10**12, 12)
    assert tasks.tolist() == [0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 0, 2]
    assert before[:3].tolist() == [666666666666, 666666666667, 111111111111]


@pytest.mark.short
@pytest.mark.parametrize("rates", [[], [0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0], [float("inf")]])
def test_rates_that_say_nothing_are_refused(rates):
    with pytest.raises(ValueError, match="rates must be finite, 0 or more, and at least one of them above 0"):
        schedule_of(rates)


@pytest.mark.short
def test_draws_and_tasks_out_of_reach_are_refused():
    schedule = schedule_of([1.0, 2.0, 0.0])
    assert len(schedule.draws(LARGEST_DRAW - 3, 3)[0]) == 3
    with pytest.raises(ValueError, match="are not within"):
        schedule.draws(LARGEST_DRAW - 3, 4)
    with pytest.raises(ValueError, match="task 2 is never drawn"):
        schedule.draw_of(2, 0)
