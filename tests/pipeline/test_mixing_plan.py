import numpy as np
import pytest
from calls import calls_of
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.pipeline.mixing_plan import UNLIMITED, MixingPlan, plan_of, replanned

tasks_with_limits = st.lists(st.tuples(st.floats(0.01, 100), st.integers(1, 60)), min_size=1, max_size=12)


def check_counts(plan: MixingPlan, first: int, count: int) -> None:
    counts = plan.counts(first)
    tasks, before = plan.draws(first, count)
    for task, drawn in zip(tasks.tolist(), before.tolist(), strict=True):
        assert drawn == counts[task]
        counts[task] += 1


@settings(deadline=None)
@given(tasks_with_limits, st.integers(0, 99))
def test_until_the_last_every_task_is_used_up_exactly(tasks, seed):
    rates, limits = zip(*tasks, strict=True)
    plan = plan_of(rates, limits, stop="last", seed=seed)
    assert plan.end == sum(limits)
    drawn, before = plan.draws(0, 10**6)
    assert np.bincount(drawn, minlength=len(limits)).tolist() == list(limits)
    assert sorted(zip(drawn.tolist(), before.tolist(), strict=True)) == [
        (task, n) for task, limit in enumerate(limits) for n in range(limit)
    ]


@settings(deadline=None)
@given(tasks_with_limits, st.integers(0, 99))
def test_the_first_task_that_runs_out_ends_it(tasks, seed):
    rates, limits = zip(*tasks, strict=True)
    plan = plan_of(rates, limits, stop="first", seed=seed)
    endless = plan_of(rates, stop="never", seed=seed)
    drawn, before = endless.draws(0, plan.end + 1)
    over = before >= np.array(limits)[drawn]
    assert not over[:-1].any() and over[-1]
    np.testing.assert_array_equal(plan.draws(0, 10**6)[0], drawn[:-1])


@settings(deadline=None)
@given(tasks_with_limits, st.integers(0, 300), st.lists(st.integers(0, 50), max_size=8))
def test_any_split_gives_the_same_draws(tasks, first, counts):
    plan = plan_of(*zip(*tasks, strict=True))
    parts, at = [], first
    for count in counts:
        parts.append(plan.draws(at, count)[0])
        at += count
    np.testing.assert_array_equal(np.concatenate([[], *parts]), plan.draws(first, at - first)[0])
    if first < plan.end:
        check_counts(plan, first, 100)


@pytest.mark.short
def test_the_others_go_on_for_ever():
    plan = plan_of([1.0, 1.0, 2.0], [5, UNLIMITED, UNLIMITED])
    assert plan.end is None
    drawn = plan.draws(0, 10_000)[0]
    assert np.bincount(drawn)[0] == 5
    assert np.bincount(plan.draws(10**9, 3000)[0]).tolist() == [0, 1000, 2000]


@settings(deadline=None)
@given(tasks_with_limits, st.integers(0, 500), st.lists(st.floats(0.1, 10), min_size=1, max_size=4))
def test_what_was_drawn_stays_when_tasks_are_added(tasks, draw, added):
    rates = [rate for rate, _ in tasks]
    plan = plan_of(rates, seed=1)
    changed = replanned(plan, draw, [*rates[1:], 0.0, *added], seed=1)
    np.testing.assert_array_equal(changed.draws(0, draw), plan.draws(0, draw))
    check_counts(changed, 0, 100)
    check_counts(changed, draw + 50, 200)
    assert len(rates) - 1 not in changed.draws(draw, 500)[0]
    assert not set(changed.draws(0, draw)[0]) & set(range(len(rates), len(rates) + len(added)))


@pytest.mark.short
def test_replanning_keeps_limits_over_the_whole_run():
    plan = replanned(plan_of([1.0, 1.0]), 10, [1.0, 1.0], [8, UNLIMITED])
    drawn = plan.draws(0, 200)[0]
    assert np.count_nonzero(drawn == 0) == 8
    ending = replanned(plan_of([1.0, 1.0]), 10, [1.0, 1.0], [5, UNLIMITED], stop="first")
    assert 10 <= ending.end <= 12
    with pytest.raises(ValueError, match="task 0 was already drawn 50 times, more often than its limit of 8"):
        replanned(plan_of([1.0, 1.0]), 100, [1.0, 1.0], [8, UNLIMITED])


@pytest.mark.short
def test_wrong_plans_are_refused():
    with pytest.raises(ValueError, match="limits must be 1 or more"):
        plan_of([1.0, 1.0], [0, 5])
    assert plan_of([0.0, 1.0], [0, 5]).end == 5
    with pytest.raises(ValueError, match="never stops has no tasks with epochs"):
        plan_of([1.0], [3], stop="never")
    with pytest.raises(ValueError, match="1 rates for 2 tasks"):
        replanned(plan_of([1.0, 1.0]), 5, [1.0])
    with pytest.raises(ValueError, match="draw 9 is after the end of the data at draw 4"):
        replanned(plan_of([1.0], [4]), 9, [1.0])


@pytest.mark.parametrize("power", [0.3, 1.0])
def test_a_thousand_tasks_that_end_one_by_one_are_planned_in_time(power):
    sizes = np.random.default_rng(0).integers(100, 10_000, 1000)
    plan, calls = calls_of(lambda: plan_of(sizes**power, sizes))
    assert calls < 15_000_000, calls
    np.testing.assert_array_equal(plan.counts(plan.end), sizes)


def test_a_task_that_would_end_beyond_every_draw_never_ends():
    for stop in ("first", "last"):
        assert plan_of([1.0, 1e-30], [-1, 5], stop=stop).end is None


def test_rates_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="all rates are 0"):
        plan_of([0.0, 0.0])
