import pytest

from spanloom.pipeline.facts.effort import effort_for, spread

pytestmark = pytest.mark.short


def test_what_is_looked_at_is_spread_evenly():
    assert spread(0, 3) == [] and spread(2, 3) == [0, 1] and spread(9, 3) == [0, 3, 6]
    assert spread(1000, 7)[0] == 0 and len(set(spread(1000, 7))) == 7


def test_many_tasks_get_less_each_but_something():
    one, many = effort_for(1), effort_for(1000)
    assert one.examples > many.examples >= 64 and one.rows > many.rows >= 2000 and one.shards > many.shards >= 1
