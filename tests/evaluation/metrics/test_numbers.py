import numpy as np
import pytest

from spanloom.evaluation.metrics.numbers import Numbers, field, means, numbered, of_sums, ratio, same


def test_numbers_are_a_dict_of_floats_and_means_of_examples():
    found = means(em=[True, False], f1=[1, 0.5])
    assert found == {"em": 50.0, "f1": 75.0} and all(type(value) is float for value in found.values())
    assert found.again(np.array([[2.0, 0.0], [0.0, 2.0]]))["f1"].tolist() == [100.0, 50.0]


def test_a_users_own_metric_of_sums():
    found = of_sums([[3, 4], [1, 4]], lambda sums: {"share": sums[:, 0] / sums[:, 1]})
    assert isinstance(found, Numbers) and found == {"share": 0.5} and found.parts == (2,)
    assert found.with_more(means(x=[1, 0])) == {"share": 0.5, "x": 50.0}


def test_groups_are_numbered_as_they_appear_and_lists_are_tuples():
    numbers, groups = numbered([[0, 1], "b", (0, 1), np.int64(3), 3])
    assert numbers.tolist() == [0, 1, 0, 2, 2] and groups == [(0, 1), "b", 3]


def test_arrays_are_equal_in_all_elements():
    assert same(np.array([1, 2]), [1, 2]) and not same(np.array([1, 2]), np.array([1, 3])) and same("a", "a")


def test_a_share_of_nothing_is_what_it_is_said_to_be():
    assert ratio(np.array([1.0, 1.0]), np.array([2.0, 0.0]), 7.0).tolist() == [0.5, 7.0]


def test_a_value_without_its_field_is_shown():
    with pytest.raises(ValueError, match=r"targets must be dicts with 'group', .* one is 'abc'"):
        field("abc", "group", "targets")
