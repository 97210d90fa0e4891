"""Edit distances (Levenshtein 1966) and the error rates made of them."""

import re
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs, means, of_sums, ratio


def distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """The fewest insertions, deletions and replacements of items that make one of the other."""
    if len(one) < len(other):
        one, other = other, one
    numbers: dict[Hashable, int] = {}
    other_ids = np.array([numbers.setdefault(item, len(numbers)) for item in other], np.int64)
    places = np.arange(len(other) + 1)
    costs = places
    for row, item in enumerate(one, 1):
        differs = other_ids != numbers.get(item, -1)
        reached = np.minimum(costs[1:] + 1, costs[:-1] + differs)
        # one insertion after another: the least over all starts at once
        costs = np.minimum.accumulate(np.concatenate([[row], reached]) - places) + places
    return int(costs[-1])


def edit_distance(targets: Sequence[str], predictions: Sequence[str], lower: bool = True) -> Numbers:
    """`min_edit`, `max_edit`, `mean_edit`, `median_edit` and `sum_edit` of distances in words, which every character
    parts that is no letter, digit or underscore. `lower`: in lower case.
    """
    check_pairs(targets, predictions)

    def words(text: str) -> list[str]:
        return re.split(r"\W", text.lower() if lower else text)

    distances_N = np.array([distance(words(p), words(t)) for t, p in zip(targets, predictions, strict=True)])
    order_N = np.argsort(distances_N, kind="stable")
    sorted_N = distances_N[order_N]

    def again(counts_BxN: FloatArray) -> dict[str, FloatArray]:
        up_to_BxN, count = np.cumsum(counts_BxN[:, order_N], axis=1), counts_BxN.shape[1]
        lowest, below, above, highest = (
            sorted_N[(up_to_BxN > place).argmax(axis=1)] for place in (0, (count - 1) // 2, count // 2, count - 1)
        )
        total = counts_BxN @ distances_N
        return {
            "min_edit": lowest,
            "max_edit": highest,
            "mean_edit": total / count,
            "median_edit": (below + above) / 2,
            "sum_edit": total,
        }

    return Numbers(len(distances_N), again)


def word_error_rate(targets: Sequence[str], predictions: Sequence[str]) -> Numbers:
    """`wer`: edits for 100 words of the targets; words are parted by white space. It may exceed 100."""
    return _error_rate("wer", targets, predictions, str.split)


def char_error_rate(targets: Sequence[str], predictions: Sequence[str]) -> Numbers:
    """`cer`: edits for 100 characters (code points) of the targets."""
    return _error_rate("cer", targets, predictions, list)


def pronunciation(targets: Sequence[str], predictions: Sequence[str]) -> Numbers:
    """Errors of pronunciations, phonemes parted by spaces, as SIGMORPHON 2020 measures them (Gorman et al. 2020):
    `wer`, words in 100 that are not right; `per`, edits for 100 phonemes. And `cer`, edits for 100 characters without
    the spaces, by which a wrong diacritic is a smaller error than a wrong sound.
    """
    wrong = [target.split() != prediction.split() for target, prediction in _pairs(targets, predictions)]
    phonemes = _error_rate("per", targets, predictions, str.split)
    characters = _error_rate("cer", targets, predictions, lambda text: list("".join(text.split())))
    return means(wer=wrong).with_more(phonemes).with_more(characters)


def _pairs(targets: Sequence[str], predictions: Sequence[str]) -> list[tuple[str, str]]:
    check_pairs(targets, predictions)
    return list(zip(targets, predictions, strict=True))


def _error_rate(
    name: str, targets: Sequence[str], predictions: Sequence[str], parts: Callable[[str], list[str]]
) -> Numbers:
    """Edits for 100 parts of the targets. Raises ValueError if these have none."""
    pairs = [(parts(target), parts(prediction)) for target, prediction in _pairs(targets, predictions)]
    if not any(target for target, _ in pairs):
        raise ValueError(f"{name} is a share of what the targets hold, and all {len(pairs):,} of them are empty")
    edits_and_lengths = [(distance(prediction, target), len(target)) for target, prediction in pairs]
    return of_sums(edits_and_lengths, lambda sums: {name: 100 * ratio(sums[:, 0], sums[:, 1], np.nan)})
