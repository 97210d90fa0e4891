"""What was measured beside what is published: which average is over what, and what is left empty."""

import statistics

import pytest

from spanloom.evaluation.published import beside_published, published_markdown
from spanloom.evaluation.result_rows import TASK, Row, with_averages
from spanloom.recipes.t0 import PUBLISHED
from spanloom.settings.published import Published, PublishedModel

pytestmark = pytest.mark.short
TWO = Published(
    "rank_accuracy",
    {"A": ("a_r1", "a_r2"), "B": ("b",)},
    (PublishedModel("theirs", "somebody, somewhere", {"A": 40.0, "B": 60.0}),),
)


def rows(**scores: list[float]) -> list[Row]:
    tasks = [
        Row("mine", TASK, data_set, f"t{number}", f"{data_set}_t{number}", 10, {"rank_accuracy": value})
        for data_set, values in scores.items()
        for number, value in enumerate(values)
    ]
    return with_averages(tasks)


def test_templates_then_rounds_then_data_sets_are_averaged():
    head, a, b, average = beside_published(rows(a_r1=[10.0, 20.0], a_r2=[45.0], b=[70.0, 80.0]), TWO)
    assert head == ["data set", "mine", "theirs"]
    assert a == ["A", "30.0", "40.0"] and b == ["B", "75.0", "60.0"]
    assert average == ["macro average of all 2", "52.5", "50.0"]


def test_an_average_is_of_the_same_data_sets_on_both_sides():
    table = beside_published(rows(a_r1=[10.0], b=[70.0]), TWO)
    assert table[1:] == [
        ["A", "", "40.0"],
        ["B", "70.0", "60.0"],
        ["macro average of 1", "70.0", "60.0"],
        ["macro average of all 2", "", "50.0"],
    ]
    assert "- theirs: somebody, somewhere" in published_markdown(table, TWO)


def test_where_nothing_of_it_was_measured_there_is_no_table():
    assert beside_published(rows(c=[1.0]), TWO) == []
    other = [Row("mine", TASK, "b", "", "b", 1, {"heldout_loss": 2.0})]
    assert beside_published(with_averages(other), TWO) == []


@pytest.mark.parametrize(
    ("name", "average"), [("T0 11B", 65.2), ("T0-3B", 55.2), ("T0 11B, rerun", 68.9), ("T0-3B, rerun", 64.4)]
)
def test_t0s_figures_come_to_the_averages_that_are_told(name, average):
    (model,) = [one for one in PUBLISHED.models if one.name == name]
    assert statistics.fmean(model.scores.values()) == pytest.approx(average, abs=0.1)
    assert set(model.scores) == set(PUBLISHED.data_sets)
