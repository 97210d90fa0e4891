import json

import numpy as np
import pytest
from made_runs import START, eval_line, make_run, train_line, wild_lines, write_lines

from spanloom.report.metrics import Metrics
from spanloom.report.run_files import RunFiles

pytestmark = pytest.mark.short


@pytest.fixture
def file(tmp_path):
    return tmp_path / "metrics.jsonl"


def metrics(path) -> Metrics:
    found = Metrics(RunFiles(str(path)))
    found.refresh()
    return found


def test_lines_become_curves_by_kind_task_and_name(tmp_path):
    write_lines(tmp_path, [START, train_line(1), eval_line(1, "en", 3.0), eval_line(1, "de", 4.0), train_line(2, None)])
    found = metrics(tmp_path)
    assert found.tasks == ["en", "de"] and found.last_step == 2 and found.damaged == 0
    assert found.curve("train", "loss").steps.tolist() == [1, 2]
    assert found.curve("train", "loss").values.tolist() == [7.0, 4.5]
    assert found.curve("eval", "heldout_loss", "de").last == 4.0
    assert found.curve("eval", "heldout_loss", "en").at(1) == 3.0 and found.curve("train", "loss").at(3) is None
    assert [start["devices"] for start in found.starts] == ["4 x TPU v4"]
    assert len(found.curve("train", "absent")) == 0 and found.curve("train", "absent").last is None


def test_what_comes_is_read_on_and_a_torn_line_is_waited_for(file, tmp_path):
    file.write_text(json.dumps(train_line(1)) + "\n" + json.dumps(train_line(2))[:20])
    found = metrics(tmp_path)
    assert found.last_step == 1 and found.damaged == 0
    assert not found.refresh()
    with file.open("a") as more:
        more.write(json.dumps(train_line(2))[20:] + "\n" + json.dumps(train_line(3)) + "\n")
    assert found.refresh()
    assert found.curve("train", "loss").steps.tolist() == [1, 2, 3] and found.damaged == 0
    assert not found.refresh()


@pytest.mark.parametrize("more", [0, 50], ids=["shorter", "longer than before"])
def test_a_file_that_was_cut_back_is_read_anew(tmp_path, more):
    write_lines(tmp_path, [START, *(train_line(step) for step in range(1, 21))])
    found = metrics(tmp_path)
    write_lines(tmp_path, [START, *(train_line(step, 9.0) for step in range(1, 11 + more))])
    assert found.refresh()
    assert found.last_step == 10 + more
    assert set(found.curve("train", "loss").values.tolist()) == {9.0}


def test_no_file_yet_and_one_that_goes_away(tmp_path):
    found = metrics(tmp_path)
    assert found.last_step == 0 and not found.refresh()
    write_lines(tmp_path, [train_line(1)])
    assert found.refresh() and found.last_step == 1
    (tmp_path / "metrics.jsonl").unlink()
    found.refresh()
    assert found.last_step == 0


def test_what_no_run_writes_is_counted_or_no_number(tmp_path):
    write_lines(tmp_path, wild_lines())
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe{"kind": "train"}\n\n' + b"[" * 100_000 + b"\n")
    found = metrics(tmp_path)
    assert found.damaged == 8
    loss = found.curve("train", "loss")
    assert loss.steps.tolist() == [1, 2, 3, 4, 7]
    assert loss.values[0] == 1e308 and np.isnan(loss.values[2]) and np.isinf(loss.values[3])
    assert np.isinf(found.curve("train", "grad_norm").values[3])
    assert 5 not in found.curve("train", "learning_rate").steps
    assert found.diverged is not None and found.last_step == 9


def test_steps_that_go_back_are_put_in_order_and_the_last_word_counts(tmp_path):
    write_lines(tmp_path, [train_line(5, 5.0), train_line(3, 3.0), train_line(5, 6.0)])
    curve = metrics(tmp_path).curve("train", "loss")
    assert curve.steps.tolist() == [3, 5] and curve.values.tolist() == [3.0, 6.0]


def test_how_it_began_and_how_it_ended_is_known_after_however_many_events(tmp_path):
    many = [{"kind": "wild", "step": step} for step in range(3000)]
    write_lines(tmp_path, [START, *many, {"kind": "diverged", "step": 3000, "loss": None}])
    found = metrics(tmp_path)
    assert found.starts and found.diverged and found.diverged["step"] == 3000 and len(found.events) <= 1000


def test_a_run_directory_is_only_read(tmp_path):
    place = make_run(tmp_path / "a")
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    metrics(place)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before
