import sys
from dataclasses import replace

import jax
import pytest
import task_functions as own
from pipeline_data import tiny_run

from spanloom.evaluation.exact_match import Prediction
from spanloom.evaluation.measure import measure
from spanloom.evaluation.task_metrics import MetricError, example_of, score_metrics, task_metrics, try_metrics
from spanloom.model.params import declare, initialize
from spanloom.pipeline.data import open_data
from spanloom.settings.objectives import Supervised
from spanloom.settings.run import After
from spanloom.settings.task import PairFiles, Task
from spanloom.tasks.functions import module_of

pytestmark = pytest.mark.short


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("inputs\ttargets\tmore\n" + "".join(f"in {i}\tt{i}\t{i}\n" for i in range(60)))
    return path


def task_of(pairs, *preprocessors, **more):
    objective = more.pop("objective", Supervised(24, 8))
    return Task(
        "p", PairFiles((str(pairs),), heldout_share=0.4), objective=objective, preprocessors=preprocessors, **more
    )


def opened(task, tmp_path):
    run = replace(tiny_run(task), batch_size=8, after=After(fills=2)).resolve()
    return run, open_data(run, tmp_path)


def right(heldout, vocabulary, but=()):
    """What a model writes that is right but for some."""
    made = []
    for number in range(heldout.num_examples):
        target = vocabulary.decode(heldout.raw(number))
        made.append(Prediction("in", target, "no" if number in but else target, number=number))
    return made


def test_exact_match_is_the_default(pairs, tmp_path):
    _, data = opened(task_of(pairs), tmp_path)
    heldout = data.tasks[0].heldout
    made = right(heldout, data.vocabulary, but=(0, 3))
    share = 1 - 2 / heldout.num_examples
    assert task_metrics(task_of(pairs), heldout, made) == {"exact_match": pytest.approx(share)}
    with pytest.raises(ValueError, match="no held-out examples"):
        task_metrics(task_of(pairs), heldout, [])


@pytest.mark.parametrize("preprocessors", [(), (own.prefixed,), (own.shuffled,)])
def test_metrics_compare_what_postprocessing_makes_of_texts_and_examples(pairs, tmp_path, preprocessors):
    task = task_of(pairs, *preprocessors, postprocess=own.with_input, metrics=(own.kept,))
    _, data = opened(task, tmp_path)
    made = right(data.tasks[0].heldout, data.vocabulary)
    assert task_metrics(task, data.tasks[0].heldout, made) == {"count": len(made)}
    targets, predictions = module_of(task.metrics[0]).KEPT
    start = {(): "in", (own.prefixed,): "say"}.get(preprocessors)
    if start:  # words in random order begin with any
        assert targets[0] == f"{start}|{made[0].target}|True"
    assert [text.replace("|True", "|False") for text in targets] == predictions


def test_the_example_has_all_fields_that_the_preprocessors_gave(pairs, tmp_path):
    task = task_of(pairs, own.numbered, metrics=(own.same_first,))
    _, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    found = [example_of(heldout, one) for one in right(heldout, data.vocabulary)]
    assert all(one["number"] == place and one["inputs"].startswith("in ") for place, one in enumerate(found))


def test_several_metrics_give_their_numbers_side_by_side(pairs, tmp_path):
    task = task_of(pairs, metrics=(own.same_first, own.kept))
    _, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    found = task_metrics(task, heldout, right(heldout, data.vocabulary, but=range(3)))
    assert found == {"same_first": pytest.approx(1 - 3 / heldout.num_examples), "count": heldout.num_examples}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ((own.same_first, own.same_first), "two metrics give a number named 'same_first': rename one"),
        ((own.no_dict,), "task 'p', metric no_dict: it returned 0.5, and must return a dict of numbers"),
        ((own.no_number,), "task 'p', metric no_number: 'worst' is 'text', and must be a number"),
        ((own.fails_as_metric,), r"metric fails_as_metric: ZeroDivisionError: .* \(at .*task_functions.py:\d+: return"),
    ],
)
def test_what_a_metric_must_not_do_is_said(pairs, tmp_path, metrics, said):
    task = task_of(pairs, metrics=metrics)
    _, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    with pytest.raises(MetricError, match=said):
        task_metrics(task, heldout, right(heldout, data.vocabulary))


def test_an_error_of_postprocessing_names_the_example(pairs, tmp_path):
    task = task_of(pairs, postprocess=own.fails_to_post)
    _, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    with pytest.raises(MetricError, match=r"task 'p', postprocessing of example 0, fails_to_post: ValueError: never"):
        task_metrics(task, heldout, right(heldout, data.vocabulary))


def test_a_run_is_measured_by_them_those_left_out_passed_over(pairs, tmp_path):
    task = task_of(pairs, own.now_and_then, metrics=(own.kept,))
    run, data = opened(task, tmp_path)
    params = initialize(declare(run.model), jax.random.key(0))
    heldout = data.tasks[0].heldout
    left = [i for i in range(heldout.num_examples) if heldout.examples.example(i) is not None]
    assert 0 < len(left) < heldout.num_examples
    made = measure(run, data, data.tasks[0], run.model, params)
    assert made.kind == "metrics" and made.values == {"count": len(left), "examples": len(left)}
    assert made.text.startswith(f"metrics on {len(left)} held-out examples: count {len(left)}")
    assert module_of(task.metrics[0]).KEPT[0] == [heldout.examples.example(i)["targets"] for i in left]
    assert made.text.count("(the target: ") == 2


def test_metrics_are_named_and_have_intervals_where_these_are_asked_for(pairs, tmp_path):
    task = task_of(pairs, metrics=("accuracy", "edit_distance", own.same_first), postprocess="lower_text")
    _, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    made = right(heldout, data.vocabulary, but=(0, 3))
    found = task_metrics(task, heldout, made)
    assert found["accuracy"] == pytest.approx(100 * (1 - 2 / len(made))) and "accuracy_low" not in found
    spread = task_metrics(task, heldout, made, resamples=50)
    assert {name: spread[name] for name in found} == found and len(spread) == 3 * len(found)
    for name in ("accuracy", "mean_edit", "same_first"):
        assert spread[f"{name}_low"] < spread[name] < spread[f"{name}_high"]
    default = task_metrics(task_of(pairs), heldout, made, resamples=50)
    assert default["exact_match_low"] < default["exact_match"] < default["exact_match_high"] <= 1


def test_metrics_of_scores_wait_for_scores(pairs, tmp_path):
    task = task_of(pairs, own.with_choices, metrics=("accuracy", "rank_classification", own.score_gap))
    run, data = opened(task, tmp_path)
    heldout = data.tasks[0].heldout
    made = right(heldout, data.vocabulary)
    assert task_metrics(task, heldout, made) == {"accuracy": 100.0}
    only = task_of(pairs, own.with_choices, metrics=("rank_classification",))
    assert task_metrics(only, heldout, made) == {}
    options = [((0, 0), True, 1.0, 2), ((0, 1), False, 1.0, 2)]
    assert score_metrics(task, options, [-1.0, -2.0]) == {"accuracy": 100.0, "gap": 1.0}
    assert score_metrics(task, options, [-2.0, -1.0], resamples=9)["accuracy_high"] == 0.0
    try_metrics(only, heldout, data.vocabulary)
    said = measure(run, data, data.tasks[0], run.model, initialize(declare(run.model), jax.random.key(0))).text
    assert "scores of options take a pass of their own: rank_classification, score_gap" in said


def test_examples_without_options_cannot_be_ranked_which_is_said_before_the_training(pairs, tmp_path):
    task = task_of(pairs, metrics=("rank_classification",))
    _, data = opened(task, tmp_path)
    said = "task 'p', metric rank_classification: example 0: answer_choices is None, and must be a list of texts"
    with pytest.raises(MetricError, match=said):
        try_metrics(task, data.tasks[0].heldout, data.vocabulary)


def test_a_missing_library_is_said_before_the_training(pairs, tmp_path, monkeypatch):
    task = task_of(pairs, metrics=("bleu",))
    _, data = opened(task, tmp_path)
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MetricError, match=r"metric bleu: MissingLibraryError: .* pip install 'spanloom\[eval\]'"):
        try_metrics(task, data.tasks[0].heldout, data.vocabulary)


@pytest.mark.parametrize("preprocessors", [(), (own.shuffled,)])
def test_code_that_fails_is_tried_before_the_training(pairs, tmp_path, preprocessors):
    fine, bad = (task_of(pairs, *preprocessors, metrics=(metric,)) for metric in (own.kept, own.fails_as_metric))
    _, data = opened(fine, tmp_path)
    heldout = data.tasks[0].heldout
    try_metrics(fine, heldout, data.vocabulary)
    try_metrics(bad, None, data.vocabulary)
    with pytest.raises(MetricError, match="task 'p', metric fails_as_metric: "):
        try_metrics(bad, heldout, data.vocabulary)
