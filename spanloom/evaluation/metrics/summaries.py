"""ROUGE of summaries (Lin 2004), by rouge-score, times 100."""

import re
from collections.abc import Sequence

from spanloom.evaluation.metrics.libraries import library
from spanloom.evaluation.metrics.numbers import Numbers, check_pairs, means

SCORES = ("rouge1", "rouge2", "rougeLsum")


class _Words:
    """A tokenizer for any script: letters, digits and marks of Unicode, in lower case."""

    def tokenize(self, text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())


def rouge(
    targets: Sequence[str],
    predictions: Sequence[str],
    score_keys: Sequence[str] = SCORES,
    use_stemmer: bool = False,
    any_script: bool = False,
) -> Numbers:
    """F of ROUGE under the names of `score_keys`: the mean over examples. T5's own `rouge` is the median of a random
    bootstrap of it, and differs by chance; `bootstrap.intervals` gives the spread.

    Sentences are parted by ' . ' or by lines (for rougeLsum). Words are runs of a-z and 0-9 alone: text of another
    script scores 0 whatever it says, unless `any_script`. `use_stemmer`: English words by their stems (Porter). Raises
    MissingLibraryError, and ValueError for sets of different sizes or a score that does not exist.
    """
    check_pairs(targets, predictions)
    make = library("rouge_score.rouge_scorer", "rouge").RougeScorer
    scorer = make(list(score_keys), use_stemmer=use_stemmer, tokenizer=_Words() if any_script else None)
    scores = [scorer.score(_lines(t), _lines(p)) for t, p in zip(targets, predictions, strict=True)]
    return means(**{key: [one[key].fmeasure for one in scores] for key in score_keys})


def _lines(text: str) -> str:
    return text.replace(" . ", " .\n")
