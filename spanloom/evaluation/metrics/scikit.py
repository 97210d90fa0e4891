"""Any other metric of scikit-learn, by its name."""

from collections.abc import Sequence
from typing import Any

from spanloom.evaluation.metrics.libraries import library
from spanloom.evaluation.metrics.numbers import check_pairs
from spanloom.settings.nearest import did_you_mean


def sklearn_metric(
    targets: Sequence[Any],
    predictions: Sequence[Any],
    metric: str,
    name: str | None = None,
    scale: float = 1.0,
    **settings: Any,
) -> dict[str, float]:
    """What `sklearn.metrics.<metric>(targets, predictions, **settings)` gives, times `scale`, as `name` (by default the
    metric's): `partial(sklearn_metric, metric="fbeta_score", beta=0.5)`.

    Raises MissingLibraryError, and ValueError for a metric that does not exist.
    """
    check_pairs(targets, predictions)
    metrics = library("sklearn.metrics", metric)
    if metric not in metrics.__all__:
        raise ValueError(f"scikit-learn has no metric {metric!r}{did_you_mean(metric, metrics.__all__)}")
    return {name or metric: scale * float(getattr(metrics, metric)(targets, predictions, **settings))}
