import math

import pytest
from made_runs import START, make_run, run_of, train_line, write_lines

from spanloom.report.costs import cost_of
from spanloom.report.run_view import View

pytestmark = pytest.mark.short


def cost(tmp_path, lines):
    return cost_of(View(str(make_run(tmp_path / "a", run_of(), lines=lines))).stages)


def test_every_line_counts_for_the_steps_since_the_line_before_it(tmp_path):
    found = cost(tmp_path, [START, train_line(1), train_line(10), train_line(20)])
    assert found.hours == pytest.approx(20 * 0.36 / 0.9 / 3600)
    assert found.device_hours == pytest.approx(4 * found.hours)
    assert found.tokens == pytest.approx(20 * 0.36 * 1000)
    assert found.flops == pytest.approx(20 * 0.36 * 0.4 * 1e11)


def test_lines_belong_to_the_devices_of_their_start(tmp_path):
    again = {**START, "step": 10, "devices": "1 x cpu", "peak_flops": 1e10}
    found = cost(tmp_path, [START, train_line(10), again, train_line(20)])
    assert found.device_hours == pytest.approx((4 + 1) * 10 * 0.36 / 0.9 / 3600)
    assert found.flops == pytest.approx(10 * 0.36 * 0.4 * (1e11 + 1e10))


def test_what_steps_reached_counts_whatever_the_machine_was_held_to_be_capable_of(tmp_path):
    found = cost(tmp_path, [START, train_line(10, flops_per_second=3e10), train_line(20, flops_per_second=5e10)])
    assert found.flops == pytest.approx(10 * 0.36 * (3e10 + 5e10))


def test_restarts_compiling_and_pauses_are_in_the_time_from_start_to_end(tmp_path):
    timed = [START | {"time": 1e9}, train_line(10, time=1e9 + 60), {**START, "step": 10, "time": 1e9 + 7000}]
    looked_at_again = {"kind": "baselines", "step": 20, "time": 1e9 + 1e6}
    found = cost(tmp_path, [*timed, train_line(20, time=1e9 + 7200), looked_at_again])
    assert found.elapsed == pytest.approx(2.0) and found.hours == pytest.approx(20 * 0.36 / 0.9 / 3600)


def test_what_is_no_time_is_left_out(tmp_path):
    wild = [{**START, "time": value} for value in ("x", None, math.nan, math.inf, -1, 10**400, 1e9)]
    assert cost(tmp_path, [*wild, train_line(3, time=1e9 + 1800)]).elapsed == pytest.approx(0.5)


def test_a_fork_counts_from_where_it_began(tmp_path):
    found = cost(tmp_path, [{**START, "step": 1000}, train_line(1010)])
    assert found.tokens == pytest.approx(10 * 0.36 * 1000)


def test_a_run_that_says_little_costs_what_it_says(tmp_path):
    place = make_run(tmp_path / "b", run_of(), lines=[])
    assert cost_of(View(str(place)).stages).hours == 0
    write_lines(place, [{"kind": "train", "step": 5, "seconds_per_step": 3.6}])
    found = cost_of(View(str(place)).stages)
    assert (found.hours, found.device_hours, found.tokens) == pytest.approx((0.005, 0.005, 0))
