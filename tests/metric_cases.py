"""Made-up targets and predictions for every metric: those whose units are examples, groups, and neither."""

import importlib.util
from functools import partial

import numpy as np
from golden_data import absent

from spanloom.evaluation import metrics
from spanloom.tasks.randomness import hash64, uniform_below

N = 40
WORDS = ("a", "cat", "the", "dog", "sat", "on", "mat", "Then", "x", "ő")


def below(bound, stream, count=N):
    return uniform_below(hash64(5, stream, np.arange(count)), bound).astype(int).tolist()


def sentences(stream, count=N, longest=9):
    lengths = below(longest, stream, count)
    words = below(len(WORDS), stream + 1, count * longest)
    return [" ".join(WORDS[w] for w in words[i * longest : i * longest + n + 1]) for i, n in enumerate(lengths)]


def nearly(texts, stream):
    """Some of them changed by a word."""
    changes = below(4, stream, len(texts))
    return [text if change else f"{text} x cat" for text, change in zip(texts, changes, strict=True)]


TEXTS = sentences(1)
MADE = nearly(TEXTS, 3)
CLASSES = [below(3, 4), [c if k else -1 for c, k in zip(below(3, 5), below(5, 6), strict=True)]]
BINARY = [below(2, 7), [c if k else 7 for c, k in zip(below(2, 8), below(6, 9), strict=True)]]
NUMBERS = [[x / 4 for x in below(20, 10)], [x / 3 for x in below(9, 11)]]
SCORES = [below(2, 12), [x / 5 for x in below(9, 13)]]

CASES = {
    "accuracy": (metrics.accuracy, *CLASSES),
    "sequence_accuracy": (metrics.sequence_accuracy, TEXTS, MADE),
    "all_match": (metrics.all_match, [1] * N, [1] * (N - 1) + [0]),
    "f1": (partial(metrics.f1, positive=2), *CLASSES),
    "f1_score_with_invalid": (metrics.f1_score_with_invalid, *BINARY),
    "mean_multiclass_f1": (partial(metrics.mean_multiclass_f1, num_classes=4), *CLASSES),
    "matthews_corrcoef": (metrics.matthews_corrcoef, *CLASSES),
    "pearson_corrcoef": (metrics.pearson_corrcoef, *NUMBERS),
    "spearman_corrcoef": (metrics.spearman_corrcoef, *NUMBERS),
    "auc": (metrics.auc, *SCORES),
    "score_auc": (metrics.score_auc, *SCORES),
    "squad": (metrics.squad, [[text, "the cat"] for text in TEXTS], MADE),
    "trivia_qa": (metrics.trivia_qa, [[text] for text in TEXTS], MADE),
    "coqa_f1": (metrics.coqa_f1, [[text] for text in TEXTS], MADE),
    "edit_distance": (metrics.edit_distance, TEXTS, MADE),
    "word_error_rate": (metrics.word_error_rate, TEXTS, MADE),
    "char_error_rate": (metrics.char_error_rate, TEXTS, MADE),
    "pronunciation": (metrics.pronunciation, TEXTS, MADE),
    "bleu": (metrics.bleu, TEXTS, MADE),
    "chrf": (metrics.chrf, TEXTS, MADE),
    "rouge": (metrics.rouge, TEXTS, MADE),
    "span_squad": (
        metrics.span_squad,
        [{"answers": [text, "the cat"], "context": f"{text} x cat ."} for text in TEXTS],
        [f"start: {start} end: {start + more}" for start, more in zip(below(3, 14), below(5, 15), strict=True)],
    ),
}
GROUPS = sorted(below(12, 16))
"""The group of each example, one to eight examples each."""
ASKED = [{"value": [text], "group": group} for text, group in zip(TEXTS, GROUPS, strict=True)]
RIGHT = [{"value": value, "group": group} for value, group in zip(BINARY[0], GROUPS, strict=True)]
SAID, JUDGED = [{"value": text} for text in MADE], [{"value": value} for value in BINARY[1]]
GROUPED = {
    "record": (metrics.record, ASKED, SAID),
    "deduplicate_metric": (partial(metrics.deduplicate_metric, metric="coqa_f1"), ASKED, SAID),
    "multirc": (metrics.multirc, RIGHT, JUDGED),
    "multirc_f1_over_all_answers": (metrics.multirc_f1_over_all_answers, RIGHT, JUDGED),
}
"""Those whose units are groups."""
CALLED = {
    "sklearn_metric": (partial(metrics.sklearn_metric, metric="fbeta_score", beta=0.5, average="macro"), *CLASSES)
}
"""Those that do not say how their examples count."""
ALL = CASES | GROUPED | CALLED
NEEDS = {"bleu": "sacrebleu", "chrf": "sacrebleu", "rouge": "rouge_score", "sklearn_metric": "sklearn"}


def needs(package):
    """Skips the test where a package of the eval extra is absent; fails it where CI=true."""
    if importlib.util.find_spec(package) is None:
        absent(f"the package {package} is absent: pip install 'spanloom[eval]'")


def case_of(name):
    if name in NEEDS:
        needs(NEEDS[name])
    return ALL[name]
