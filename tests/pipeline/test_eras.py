import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloom.pipeline.eras import Era, continued, earlier_slots, from_data, next_draw, plan_from, to_data
from spanloom.pipeline.packing import WINDOW

pytestmark = pytest.mark.short

TWO = Era(0, {"a": 1.0, "b": 3.0})
THREE = Era(0, {"0": 2.0, "a": 1.0, "b": 1.0})


def draws_of(eras, first, count):
    names, plan = plan_from(eras)
    tasks_N, before_N = plan.draws(first, count)
    return [(names[task], before) for task, before in zip(tasks_N.tolist(), before_N.tolist(), strict=True)]


def test_a_run_that_goes_on_as_it_was_has_one_era():
    eras = continued(TWO, (), {"examples": 0})
    assert continued(replace(TWO, draw=5), eras, {"examples": 999}) == eras == (TWO,)
    assert continued(THREE, eras, {"examples": 0}) == (THREE,)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 3000), st.integers(0, 3000))
def test_what_was_drawn_stays_and_counts_go_on(at, later):
    eras = continued(THREE, (TWO,), {"examples": at})
    assert draws_of(eras, 0, at) == draws_of((TWO,), 0, at)
    drawn = draws_of(eras, 0, at + later)
    for name in ("0", "a", "b"):
        assert [before for task, before in drawn if task == name] == list(range(sum(task == name for task, _ in drawn)))
        share = THREE.rates[name] / 4
        assert abs(sum(task == name for task, _ in drawn[at:]) - share * later) <= 3


def test_tasks_keep_their_numbers():
    assert plan_from(continued(THREE, (TWO,), {"examples": 100}))[0] == ["a", "b", "0"]


def test_a_change_taken_back_before_anything_was_drawn_leaves_no_trace():
    changed = continued(THREE, (TWO,), {"examples": 50})
    again = continued(TWO, changed, {"examples": 50})
    assert draws_of(again, 0, 200) == draws_of(continued(TWO, (TWO,), {"examples": 50}), 0, 200)
    assert len(continued(THREE, (TWO,), {"examples": 0})) == 1


def test_a_task_that_is_gone_is_named():
    with pytest.raises(
        ValueError, match=r"drawn from the task 'b', which is gone: keep it in the mixture, with rate 0"
    ):
        continued(Era(0, {"a": 1.0}), (TWO,), {"examples": 10})
    eras = continued(Era(0, {"a": 1.0, "b": 0.0}), (TWO,), {"examples": 10})
    assert {task for task, _ in draws_of(eras, 10, 100)} == {"a"}


@pytest.mark.parametrize(
    ("position", "draw"),
    [
        ({"examples": 7}, 7),
        ({"window": 0, "row": 0}, 0),
        ({"window": 3, "row": 0}, 3 * WINDOW),
        ({"window": 3, "row": 1}, 4 * WINDOW),
    ],
)
def test_a_window_that_is_begun_is_drawn_to_its_end(position, draw):
    assert next_draw(position) == draw


def test_limits_count_from_the_beginning():
    begun = Era(0, {"a": 1.0, "b": 1.0}, {"a": 30}, "last")
    eras = continued(replace(begun, rates={"a": 2.0, "b": 1.0}), (begun,), {"examples": 40})
    drawn = draws_of(eras, 0, 500)
    assert sum(task == "a" for task, _ in drawn) == 30
    with pytest.raises(ValueError, match="task 'a' was already drawn 20 times, more often than its limit of 5"):
        plan_from(continued(replace(begun, limits={"a": 5}), (begun,), {"examples": 40}))


def test_slots_of_earlier_windows():
    first = Era(0, {"a": 1.0}, slots=(8, 4))
    eras = continued(replace(first, slots=(16, 4)), (first,), {"window": 2, "row": 5})
    assert earlier_slots(eras) == ((3, (8, 4)),)
    assert earlier_slots((first,)) == ()


def test_eras_survive_json():
    eras = continued(THREE, (replace(TWO, limits={"a": 300}, stop="first", slots=(8, 4)),), {"examples": 99})
    assert from_data(json.loads(json.dumps(to_data(eras)))) == eras
    assert from_data([]) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda era: era.pop("rates"),
        lambda era: era.update(other=1),
        lambda era: era.update(rates={"a": -1.0}),
        lambda era: era.update(rates={}),
        lambda era: era.update(rates=7),
        lambda era: era.update(slots=3),
    ],
)
def test_what_are_no_eras_is_refused(damage):
    data = to_data((TWO,))
    damage(data[0])
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        from_data(data)


def test_draws_are_the_same_by_any_way_through_json():
    eras = continued(THREE, (TWO,), {"examples": 1000})
    again = from_data(json.loads(json.dumps(to_data(eras))))
    for one, other in zip(plan_from(eras)[1].draws(900, 300), plan_from(again)[1].draws(900, 300), strict=True):
        np.testing.assert_array_equal(one, other)
