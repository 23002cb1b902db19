"""Percentiles of scores and ratings, and the distance between them."""

from __future__ import annotations

import numpy as np

from capbench.core.records import FloatArray
from capbench.stats.ties import merged
from capbench.studies.item_scores import ItemScores


def percentiles(values: FloatArray) -> FloatArray:
    """(n,) percentiles in (0, 100): the share of smaller values, plus half the share of equal values.

    >>> percentiles(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [87.5, 12.5, 50.0, 50.0]
    """
    from scipy.stats import rankdata

    return np.asarray(100 * (rankdata(merged(values)) - 0.5) / max(len(values), 1), dtype=np.float64)


def human_percentiles(table: ItemScores) -> FloatArray:
    """(n,) percentiles of the human ratings. For pairs it is 100: the preferred order is the maximum."""
    return np.full(len(table), 100.0) if table.kind == "preferences" else percentiles(table.human_values)


def disagreement(table: ItemScores) -> FloatArray:
    """(n,) largest distance between the human percentile and a metric's, over all metrics of a table."""
    human, greatest = human_percentiles(table), np.zeros(len(table))
    for name in table.scores:
        places, scores = table.points(name)
        greatest[places] = np.maximum(greatest[places], np.abs(percentiles(scores) - human[places]))
    return greatest
