"""Curves of any length as so many points as a screen can show, without losing a peak.

Points are put into columns of equal width along the axis of steps. Of each column its lowest, highest and mean value
are kept: a band with a line in it, which is what a plot of all points would look like.
"""

from dataclasses import dataclass

import numpy as np

from spanloom.report.metrics import Curve, Float64Array

COLUMNS = 1_000
"""More than a chart is wide, so that some can be seen by zooming."""


@dataclass(frozen=True)
class Columns:
    """What is drawn of a curve; a value is NaN where its points are no numbers."""

    steps: Float64Array
    """(C,) of the last point of each column."""
    low: Float64Array
    """(C,)"""
    high: Float64Array
    """(C,)"""
    mean: Float64Array
    """(C,)"""

    @property
    def is_band(self) -> bool:
        """Whether a column holds more than one value."""
        same = (self.low == self.high) | np.isnan(self.mean)
        return not bool(same.all())


def columns_of(curve: Curve, most: int = COLUMNS) -> Columns:
    """The columns of a curve, at most `most`: the points themselves where they are no more.

    What is not finite is NaN; a column is NaN only where all of it is none, lest a gap hide what is beside it.
    """
    values = np.where(np.isfinite(curve.values), curve.values, np.nan)
    if len(curve) <= most:
        return Columns(curve.steps, values, values, values)
    first, last = curve.steps[0], curve.steps[-1]
    number = np.minimum(((curve.steps - first) / (last - first) * most).astype(np.int64), most - 1)
    starts = np.flatnonzero(np.append(True, np.diff(number) > 0))
    ends = np.append(starts[1:], len(curve)) - 1
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    low = np.minimum.reduceat(np.where(known, values, np.inf), starts)
    high = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    # Shares are added, not numbers: a sum of the largest would be none.
    shares = np.where(known, values, 0.0) / np.maximum(np.repeat(counts, ends - starts + 1), 1)
    mean = np.add.reduceat(shares, starts)
    empty = counts == 0
    return Columns(curve.steps[ends], *(np.where(empty, np.nan, one) for one in (low, high, mean)))
