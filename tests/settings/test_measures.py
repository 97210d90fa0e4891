import functools

import pytest

from spanloom.evaluation import metrics, postprocessors
from spanloom.evaluation.metrics import rouge, squad
from spanloom.settings.function import Function, FunctionError
from spanloom.settings.measures import METRICS, POSTPROCESSORS, metric_of, postprocessor_of, template_metric
from spanloom.settings.serialize import from_json, to_json
from spanloom.settings.task import PairFiles, Task
from spanloom.tasks.functions import resolve

pytestmark = pytest.mark.short


def test_every_name_is_a_function_that_comes_with_us_and_every_such_function_has_a_name():
    others = {"Interval", "MissingLibraryError", "Numbers", "intervals", "means", "of_sums"}
    assert {resolve(metric_of(name)).__name__ for name in METRICS} == set(metrics.__all__) - others
    made = {name for name, one in vars(postprocessors).items() if callable(one) and name.islower() and name[0] != "_"}
    assert {resolve(postprocessor_of(name)).__name__ for name in POSTPROCESSORS} == made


def test_a_name_is_as_good_as_its_function():
    named = Task("t", PairFiles(("x",)), metrics=("rouge", "squad"), postprocess="qa")
    given = Task("t", PairFiles(("x",)), metrics=(rouge, squad), postprocess=postprocessors.qa)
    assert named == given == from_json(to_json(named), Task)
    assert resolve(named.metrics[0]) is rouge


def test_settings_are_given_by_partial_and_a_metric_inside_of_one_by_its_name():
    task = Task("t", PairFiles(("x",)), metrics=(functools.partial(metrics.mean_group_metric, metric="all_match"),))
    assert task.metrics[0].arguments == {"metric": "all_match"}
    assert metric_of(Function("a.b:c")) == Function("a.b:c")


# Of promptsource's METRICS; t5 lacks three of them.
PROMPTSOURCES = (
    "BLEU", "ROUGE", "Squad", "Trivia QA", "Accuracy", "Pearson Correlation", "Spearman Correlation", "MultiRC", "AUC",
    "COQA F1", "Edit Distance", "Mean Reciprocal Rank", "Mean Squared Error", "Other",
)  # fmt: skip


def test_metrics_of_prompt_templates():
    lacking = [name for name in PROMPTSOURCES if template_metric(name) is None]
    assert lacking == ["Mean Reciprocal Rank", "Mean Squared Error", "Other"]
    assert template_metric("Accuracy") == metric_of("accuracy") and template_metric("COQA F1") == metric_of("coqa_f1")
    assert (
        template_metric("Spearman correlation") == metric_of("spearman_corrcoef") and template_metric("Other") is None
    )
    assert template_metric("word_error_rate") == metric_of("word_error_rate")
    with pytest.raises(FunctionError, match=r"there is none called 'Rogue'; did you mean rouge\b"):
        template_metric("Rogue")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"metrics": ("rogue",)}, r"metrics of task 't': there is none called 'rogue'; did you mean rouge\b"),
        ({"metrics": ("zzzz",)}, "there is none called 'zzzz'; known are accuracy, sequence_accuracy, .*rouge_mean"),
        ({"metrics": "rouge"}, r"metrics of task 't': must be a list of functions, even if it is one: \('rouge',\)"),
        ({"postprocess": "q_a"}, r"postprocess of task 't': there is none called 'q_a'; did you mean qa\b"),
        ({"preprocessors": ("lm",)}, "preprocessors of task 't': 'lm' is no function: give the function itself"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(settings, said):
    with pytest.raises(FunctionError, match=said):
        Task("t", PairFiles(("x",)), **settings)
