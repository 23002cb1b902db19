"""Statistics of agreement with human ratings: arrays in, numbers out.

>>> result = correlation("tau-b", [0.1, 0.4, 0.4, 0.9], [1, 2, 3, 4])
>>> round(result.value, 4), result.ties_x
(0.9129, 1)
"""

from capbench.stats.correlation import CorrelationResult, correlation
from capbench.stats.kendall import PairCounts, RankCode, pair_counts, rank_encode, tau_b, tau_c
from capbench.stats.pairwise_accuracy import AccuracyResult, GroupAccuracy, aggregate, pairwise_accuracy

__all__ = [
    "AccuracyResult",
    "CorrelationResult",
    "GroupAccuracy",
    "PairCounts",
    "RankCode",
    "aggregate",
    "correlation",
    "pair_counts",
    "pairwise_accuracy",
    "rank_encode",
    "tau_b",
    "tau_c",
]
