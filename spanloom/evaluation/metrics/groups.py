"""Metrics of examples that belong together: questions with several answers, copies of an example, languages.

Targets and predictions are dicts with a 'value', targets also with a 'group', as postprocessors make them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from spanloom.evaluation.metrics.answers import squad
from spanloom.evaluation.metrics.labels import all_match, multirc_f1_over_all_answers
from spanloom.evaluation.metrics.numbers import FloatArray, Numbers, check_pairs, field, hashable, numbered, ratio
from spanloom.settings.measures import metric_of
from spanloom.tasks.functions import resolve

Metric = Callable[..., Mapping[str, float]]


def mean_group_metric(
    targets: Sequence[Any],
    predictions: Sequence[Any],
    metric: Metric | str,
    group_key: str = "group",
    value_key: str = "value",
    return_subgroup_scores: bool = False,
) -> Mapping[str, float]:
    """The mean over groups of what `metric` (a function or a name) says of each: partial(mean_group_metric,
    metric="all_match"). With `return_subgroup_scores` also each group's own numbers, as '<group>-<number>'.

    A bootstrap draws whole groups; with their own numbers shown, which makes them languages or kinds rather than a
    sample of questions, it draws the examples of each. Raises ValueError for values that are not of such dicts.
    """
    call = _callable(metric)
    values = _values(targets, predictions, value_key)
    groups_N, groups = numbered(field(one, group_key, "targets") for one in targets)
    found = []
    for group in range(len(groups)):
        members = np.flatnonzero(groups_N == group).tolist()
        found.append(call(*([side[i] for i in members] for side in values)))
    if return_subgroup_scores:
        return _beside_their_mean(list(map(_shown, groups)), found)
    names = list(dict.fromkeys(name for one in found for name in one))
    scores_GxM = np.array([[one.get(name, np.nan) for name in names] for one in found], np.float64)
    there_GxM = np.array([[name in one for name in names] for one in found])
    return Numbers(
        len(found), lambda counts_BxG: dict(zip(names, _means(scores_GxM, there_GxM, counts_BxG), strict=True))
    )


def deduplicate_metric(
    targets: Sequence[Any],
    predictions: Sequence[Any],
    metric: Metric | str,
    group_key: str = "group",
    value_key: str = "value",
) -> Mapping[str, float]:
    """What `metric` (a function or a name) says of the first example of each group: of ReCoRD, whose examples come once
    for each of their answers. Raises ValueError for values that are not of such dicts.
    """
    values = _values(targets, predictions, value_key)
    groups_N, _ = numbered(field(one, group_key, "targets") for one in targets)
    firsts = np.sort(np.unique(groups_N, return_index=True)[1]).tolist()
    return _callable(metric)(*([side[i] for i in firsts] for side in values))


def record(targets: Sequence[Any], predictions: Sequence[Any]) -> Mapping[str, float]:
    """`em` and `f1` of ReCoRD, each question once (`postprocessors.record` makes the values)."""
    return deduplicate_metric(targets, predictions, squad)


def multirc(targets: Sequence[Any], predictions: Sequence[Any]) -> Mapping[str, float]:
    """MultiRC's two: `f1` over all answers, and `exact_match`, questions in 100 whose answers are all right
    (`postprocessors.multirc` makes the values).
    """
    answers, questions = (
        multirc_f1_over_all_answers(targets, predictions),
        mean_group_metric(targets, predictions, all_match),
    )
    assert isinstance(questions, Numbers)
    return answers.with_more(questions)


def _callable(metric: Metric | str) -> Metric:
    return resolve(metric_of(metric)) if isinstance(metric, str) else metric


def _values(targets: Sequence[Any], predictions: Sequence[Any], key: str) -> tuple[list[Any], list[Any]]:
    check_pairs(targets, predictions)
    return [field(one, key, "targets") for one in targets], [field(one, key, "predictions") for one in predictions]


def _means(scores_GxM: FloatArray, there_GxM: np.ndarray, counts_BxG: FloatArray) -> FloatArray:
    """The mean of each number over the drawn groups that have it, (M, B)."""
    drawn_BxM = counts_BxG @ there_GxM
    sums_BxM = counts_BxG @ np.where(there_GxM, scores_GxM, 0.0)
    return ratio(sums_BxM, drawn_BxM, np.nan).T  # a resample may be without a group that has the number


def _beside_their_mean(groups: Sequence[str], found: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    if not all(isinstance(one, Numbers) for one in found):
        return _named(groups, found)
    inner = [one for one in found if isinstance(one, Numbers)]
    sizes = [sum(one.parts) for one in inner]

    def again(counts_BxN: FloatArray) -> Mapping[str, FloatArray]:
        each = np.split(counts_BxN, np.cumsum(sizes)[:-1], axis=1)
        return _named(groups, [one.again(counts) for one, counts in zip(inner, each, strict=True)])

    return Numbers([size for one in inner for size in one.parts], again)


def _named(groups: Sequence[str], found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means first, each followed by the groups' own."""
    named: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in found for name in one):
        own = {f"{group}-{name}": one[name] for group, one in zip(groups, found, strict=True) if name in one}
        named[name] = np.mean(list(own.values()), axis=0)
        named.update(own)
    return named


def _shown(group: Hashable) -> str:
    """A group as T5 writes it into a name: of several parts as Python writes a tuple."""
    return str(hashable(group))
