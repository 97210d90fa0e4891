"""BLEU and chrF of translations, by sacrebleu (Post 2018), times 100."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.evaluation.metrics.libraries import library
from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs

Texts = Sequence[str]


def bleu(
    targets: Texts | Sequence[Texts], predictions: Texts, tokenizer: str = "intl", per_example: bool = False
) -> Numbers:
    """`bleu` (Papineni et al. 2002), of the whole set, in words as sacrebleu's `tokenizer` cuts them (intl, 13a, zh,
    char, ...), smoothed as sacrebleu does by default.

    Several references are lists, each of one reference for every prediction, as sacrebleu and T5 have them; with
    `per_example`, a list of references for each prediction. Fewer than 4 words in all give 0. Raises
    MissingLibraryError, and ValueError for sets of different sizes.
    """
    make = library("sacrebleu", "bleu").BLEU
    scorer = make(tokenize=tokenizer, smooth_method="exp", smooth_value=0.0, effective_order=False)
    return _of_corpus("bleu", scorer, targets, predictions, per_example)


def chrf(
    targets: Texts | Sequence[Texts], predictions: Texts, word_order: int = 0, per_example: bool = False
) -> Numbers:
    """`chrf` (Popović 2015): F of n-grams of characters, recall twice as important; `word_order` 2 is chrF++.

    References as in `bleu`. Raises MissingLibraryError, and ValueError for sets of different sizes.
    """
    scorer = library("sacrebleu", "chrf").CHRF(word_order=word_order)
    return _of_corpus("chrf", scorer, targets, predictions, per_example)


def _of_corpus(
    name: str, scorer: Any, targets: Texts | Sequence[Texts], predictions: Texts, per_example: bool
) -> Numbers:
    """A score of sums over sentences, which sacrebleu's metrics are."""
    references = _references(targets, predictions, per_example)
    statistics_NxK = np.asarray(scorer._extract_corpus_statistics(list(predictions), references), np.float64)

    def again(counts_BxN: FloatArray) -> Mapping[str, FloatArray]:
        sums_BxK = np.rint(counts_BxN @ statistics_NxK).astype(np.int64)
        return {name: np.array([scorer._compute_score_from_stats(sums).score for sums in sums_BxK.tolist()])}

    return Numbers(len(statistics_NxK), again)


def _references(targets: Texts | Sequence[Texts], predictions: Texts, per_example: bool) -> list[list[Any]]:
    """Lists of one reference for every prediction; None where one has fewer than others."""
    if not len(targets) or isinstance(targets[0], str):
        check_pairs(targets, predictions)
        return [list(targets)]
    if per_example:
        check_pairs(targets, predictions)
        most = max(map(len, targets))
        return [[one[k] if k < len(one) else None for one in targets] for k in range(most)]
    for number, stream in enumerate(targets):
        if len(stream) != len(predictions):
            raise ValueError(
                f"list {number} of references has {len(stream):,} of them for {len(predictions):,} predictions; if "
                "each list is of one prediction, say per_example=True"
            )
    check_pairs(targets[0], predictions)
    return [list(stream) for stream in targets]
