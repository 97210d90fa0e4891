import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_cases import ALL, CASES, GROUPED, case_of

from spanloom.evaluation.metrics.bootstrap import draws, intervals
from spanloom.evaluation.metrics.labels import accuracy
from spanloom.evaluation.metrics.numbers import Numbers

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def own(targets, predictions):
    """As a user writes one: it does not say how its examples count."""
    return {"right": sum(t == p for t, p in zip(targets, predictions, strict=True)) / len(targets), "first": 1}


@pytest.mark.parametrize("name", CASES)
def test_a_resample_has_the_numbers_of_its_examples(name):
    metric, targets, predictions = case_of(name)
    found = metric(targets, predictions)
    assert isinstance(found, Numbers)
    (counts_BxN,) = draws((len(targets),), 3, seed=4)
    again = found.again(counts_BxN)
    for row, counts_N in enumerate(counts_BxN.astype(int)):
        chosen = np.repeat(np.arange(len(targets)), counts_N)
        wanted = metric([targets[i] for i in chosen], [predictions[i] for i in chosen])
        assert {key: float(again[key][row]) for key in again} == pytest.approx(dict(wanted), rel=1e-9), counts_N


@pytest.mark.parametrize("name", GROUPED)
def test_a_resample_of_groups_has_the_numbers_of_all_their_examples(name):
    metric, targets, predictions = case_of(name)
    found = metric(targets, predictions)
    groups = sorted({one["group"] for one in targets})
    assert isinstance(found, Numbers) and found.parts == (len(groups),) and len(groups) < len(targets) / 2
    (counts_BxG,) = draws(found.parts, 3, seed=4)
    again = found.again(counts_BxG)
    for row, counts_G in enumerate(counts_BxG.astype(int)):
        copies = [(group, copy) for group, count in zip(groups, counts_G, strict=True) for copy in range(count)]
        chosen = [(i, copy) for group, copy in copies for i, one in enumerate(targets) if one["group"] == group]
        drawn = [targets[i] | {"group": (targets[i]["group"], copy)} for i, copy in chosen]
        wanted = metric(drawn, [predictions[i] for i, _ in chosen])
        assert {key: float(again[key][row]) for key in again} == pytest.approx(dict(wanted), rel=1e-9), counts_G


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_examples_does_not_matter(name):
    metric, targets, predictions = case_of(name)
    turned = metric(targets[::-1], predictions[::-1])
    assert dict(turned) == pytest.approx(dict(metric(targets, predictions)), rel=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_an_interval_holds_its_value(name):
    metric, targets, predictions = case_of(name)
    found = intervals(metric, targets, predictions, resamples=50)
    assert found.keys() == metric(targets, predictions).keys()
    assert all(one.low <= one.value <= one.high for one in found.values())
    assert any(one.low < one.high for one in found.values())


@pytest.mark.parametrize("name", ALL)
def test_no_examples_and_unequal_numbers_of_them_are_refused(name):
    metric, targets, predictions = case_of(name)
    with pytest.raises(ValueError, match="there are no examples to measure"):
        metric([], [])
    with pytest.raises(ValueError, match=r"40 targets and 39 (predictions|scores): there must be one of each"):
        metric(targets, predictions[1:])


@given(st.lists(st.booleans(), min_size=1, max_size=40), st.integers(0, 2**40))
@few
def test_any_share_lies_in_its_interval(right, seed):
    found = intervals(accuracy, [True] * len(right), right, resamples=40, seed=seed)["accuracy"]
    assert found.value == pytest.approx(100 * sum(right) / len(right))
    assert 0 <= found.low <= found.value <= found.high <= 100


def test_an_interval_is_as_wide_as_a_binomial_one():
    """Of 400 examples, 300 right: 75 +- 1.96 * sqrt(.75 * .25 / 400) = 70.8 to 79.2 percent."""
    found = intervals(accuracy, [1] * 400, [1] * 300 + [0] * 100, resamples=4000)["accuracy"]
    assert (
        found.value == 75 and found.low == pytest.approx(70.76, abs=0.5) and found.high == pytest.approx(79.24, abs=0.5)
    )


def test_the_seed_decides_and_a_users_own_metric_has_intervals_too():
    made = [1] * 20, [1, 0] * 10
    first, again, other = (intervals(own, *made, resamples=30, seed=seed) for seed in (1, 1, 2))
    assert first == again and first != other
    assert first["right"].low < first["right"].value < first["right"].high
    assert first["first"] == (1, 1, 1)
    ours = intervals(accuracy, *made, resamples=30, seed=1)["accuracy"]
    assert [100 * one for one in first["right"]] == pytest.approx(list(ours))  # the same examples are drawn


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
@few
def test_every_part_is_drawn_from_as_often_as_it_is_large(parts):
    (counts_BxN,) = draws(parts, 6, seed=0)
    for part in np.split(counts_BxN, np.cumsum(parts)[:-1], axis=1):
        assert (part.sum(axis=1) == part.shape[1]).all()


def test_large_sets_are_drawn_in_blocks_with_the_same_draws(monkeypatch):
    (whole,) = draws((50,), 7, seed=3)
    monkeypatch.setattr("spanloom.evaluation.metrics.bootstrap._CELLS", 120)
    blocks = list(draws((50,), 7, seed=3))
    assert [len(one) for one in blocks] == [2, 2, 2, 1] and (np.concatenate(blocks) == whole).all()


@pytest.mark.parametrize("odd", [{"resamples": 1}, {"level": 0.0}, {"level": 1.0}])
def test_odd_settings_are_refused(odd):
    with pytest.raises(ValueError, match="2 resamples or more and a level in"):
        intervals(accuracy, [1], [1], **odd)
