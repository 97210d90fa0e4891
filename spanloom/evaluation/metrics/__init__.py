"""Metrics of decoded texts, classes, numbers and scores, which a recipe names: metrics=("rouge", "squad").

A metric is a function of the lists of targets and predictions (or of `scores`, which the model gives) to a dict of
numbers; `functools.partial` gives its settings. Those of t5.evaluation have t5's names and numbers. Each can be asked
for a bootstrap interval (`bootstrap.intervals`), and so can a user's own.
"""

from spanloom.evaluation.metrics.answers import coqa_f1, span_squad, squad, trivia_qa
from spanloom.evaluation.metrics.bootstrap import Interval, intervals
from spanloom.evaluation.metrics.correlation import pearson_corrcoef, spearman_corrcoef
from spanloom.evaluation.metrics.curves import auc, score_auc
from spanloom.evaluation.metrics.edits import char_error_rate, edit_distance, pronunciation, word_error_rate
from spanloom.evaluation.metrics.groups import deduplicate_metric, mean_group_metric, multirc, record
from spanloom.evaluation.metrics.labels import (
    accuracy,
    all_match,
    f1,
    f1_score_with_invalid,
    matthews_corrcoef,
    mean_multiclass_f1,
    multirc_f1_over_all_answers,
    sequence_accuracy,
)
from spanloom.evaluation.metrics.libraries import MissingLibraryError
from spanloom.evaluation.metrics.numbers import Numbers, means, of_sums
from spanloom.evaluation.metrics.rank_classification import rank_classification
from spanloom.evaluation.metrics.scikit import sklearn_metric
from spanloom.evaluation.metrics.summaries import rouge
from spanloom.evaluation.metrics.translation import bleu, chrf

__all__ = ["Interval", "MissingLibraryError", "Numbers", "accuracy", "all_match", "auc", "bleu", "char_error_rate"]
__all__ += ["chrf", "coqa_f1", "deduplicate_metric", "edit_distance", "f1", "f1_score_with_invalid", "intervals"]
__all__ += ["matthews_corrcoef", "mean_group_metric", "mean_multiclass_f1", "means", "multirc"]
__all__ += ["multirc_f1_over_all_answers", "of_sums", "pearson_corrcoef", "pronunciation", "rank_classification"]
__all__ += ["record", "rouge", "score_auc", "sequence_accuracy", "sklearn_metric", "span_squad", "spearman_corrcoef"]
__all__ += ["squad", "trivia_qa", "word_error_rate"]
