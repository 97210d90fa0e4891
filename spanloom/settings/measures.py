"""Names of the metrics and postprocessors that come with Spanloom: metrics=("rouge", "squad"), postprocess="qa"."""

from collections.abc import Mapping
from typing import Any

from spanloom.settings.function import Function, as_function

_FILES = {
    "labels": (
        "accuracy", "sequence_accuracy", "all_match", "f1", "f1_score_with_invalid", "multirc_f1_over_all_answers",
        "mean_multiclass_f1", "matthews_corrcoef",
    ),
    "curves": ("auc", "score_auc"),
    "correlation": ("pearson_corrcoef", "spearman_corrcoef"),
    "answers": ("squad", "trivia_qa", "span_squad", "coqa_f1"),
    "translation": ("bleu", "chrf"),
    "summaries": ("rouge",),
    "edits": ("edit_distance", "word_error_rate", "char_error_rate", "pronunciation"),
    "groups": ("mean_group_metric", "deduplicate_metric", "record", "multirc"),
    "rank_classification": ("rank_classification",),
    "scikit": ("sklearn_metric",),
}  # fmt: skip
_POSTPROCESSORS = (
    "string_to_float", "lower_text", "string_label_to_class_id", "multirc", "record", "qa", "span_qa", "wsc_simple",
    "rank_classification", "grouped",
)  # fmt: skip

METRICS: Mapping[str, str] = {
    **{name: f"spanloom.evaluation.metrics.{file}:{name}" for file, names in _FILES.items() for name in names},
    "rouge_mean": "spanloom.evaluation.metrics.summaries:rouge",
}
"""The function of each named metric."""
POSTPROCESSORS: Mapping[str, str] = {name: f"spanloom.evaluation.postprocessors:{name}" for name in _POSTPROCESSORS}
"""The function of each named postprocessor."""

_OF_TEMPLATES = {
    "accuracy": "accuracy", "sequence accuracy": "sequence_accuracy", "bleu": "bleu", "rouge": "rouge",
    "squad": "squad", "span squad": "span_squad", "trivia qa": "trivia_qa", "coqa f1": "coqa_f1",
    "pearson correlation": "pearson_corrcoef", "spearman correlation": "spearman_corrcoef", "auc": "auc",
    "multirc": "multirc_f1_over_all_answers", "edit distance": "edit_distance",
}  # fmt: skip
_LACKING = ("other", "mean squared error", "mean reciprocal rank")
"""Metrics of promptsource's templates that t5 has none for."""


def template_metric(name: str) -> Function | None:
    """The metric that a prompt template names, as promptsource does ("Accuracy", "COQA F1") or as METRICS; None for
    those of promptsource that t5 lacks ("Other"). Raises FunctionError, with the nearest name, for any other name.
    """
    if name.lower() in _LACKING:
        return None
    return metric_of(_OF_TEMPLATES.get(name.lower(), name))


def metric_of(code: Any) -> Function:
    """A metric by its name ("rouge"), or a callable. Raises FunctionError, with the nearest name, for any other."""
    return as_function(code, METRICS)


def postprocessor_of(code: Any) -> Function:
    """A postprocessor by its name ("qa"), or a callable. Raises FunctionError as `metric_of` does."""
    return as_function(code, POSTPROCESSORS)
