"""What is filled in at evaluations: the same examples each time, once a step, and the same after a resume."""

import dataclasses

import pytest
from tiny_training import tiny_run, train, write_text

from spanloom.report.run_page import page
from spanloom.report.run_view import views_of
from spanloom.settings.run import Checkpoints, Evaluation
from spanloom.settings.serialize import SettingsError
from spanloom.training.loggers import read_events


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    text = write_text(tmp_path_factory.mktemp("text") / "a.txt")
    evaluation = Evaluation(every=10, max_batches=1, fills=2)
    return tiny_run(text, 20, eval=evaluation, checkpoint=Checkpoints(every=10)).resolve()


@pytest.fixture(scope="module")
def straight(run, tmp_path_factory):
    directory = tmp_path_factory.mktemp("straight")
    train(run, directory)
    return directory


def filled(directory):
    return {
        event["step"]: event["fills"] for event in read_events(directory / "metrics.jsonl") if event["kind"] == "fills"
    }


def test_each_evaluation_fills_in_the_same_gaps(straight):
    found = filled(straight)
    assert list(found) == [10, 20] and all(len(examples) == 2 for examples in found.values())
    texts = [[[(text, guess is None) for text, guess, _ in one] for one in examples] for examples in found.values()]
    assert texts[0] == texts[1]
    assert any(guess is not None for _, guess, _ in found[10][0])


def test_a_run_that_goes_on_fills_in_what_a_straight_one_does(run, straight, tmp_path):
    train(dataclasses.replace(run, steps=10), tmp_path)
    train(run, tmp_path)
    assert filled(tmp_path) == filled(straight)
    kinds = [(event["kind"], event["step"]) for event in read_events(tmp_path / "metrics.jsonl")]
    assert kinds.count(("fills", 10)) == kinds.count(("fills", 20)) == 1


def test_a_report_shows_them_one_evaluation_after_another(straight):
    made = page(views_of([str(straight)]), "")
    assert "What was filled in, over time" in made
    assert made.count("<dt>step 10</dt>") == made.count("<dt>step 20</dt>") == 2


def test_fewer_than_none_are_refused(run):
    with pytest.raises(SettingsError, match=r"eval.fills"):
        dataclasses.replace(run, eval=Evaluation(fills=-1)).resolve()
