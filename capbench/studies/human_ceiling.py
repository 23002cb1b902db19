"""The human ceiling of a protocol: human raters in the place of a metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.errors import count as number_of
from capbench.core.records import Judgements, photograph
from capbench.datasets.protocol import Protocol
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.human_ceiling import leave_one_rater_out, pairwise_tau_b, vote_credit
from capbench.stats.pairs import Unit
from capbench.stats.resampling import observed_value, unit_codes
from capbench.studies.data_points import in_decided_groups, item_column, unit_labels
from capbench.studies.results import Ceiling

FEWEST_IN_CEILING = 30
"""Minimum number of images of a human ceiling.

With 30 images with one doubly rated caption each, a ceiling of .6 has a standard error of about
(1 - .36) / sqrt(29) = .12, more than what separates most metrics; and percentile intervals of fewer units fall short
of their nominal coverage.
"""
HUMAN_CEILING = "human ceiling"
"""Name of the human ceiling in the place of a metric."""


def human_ceiling(
    protocol: Protocol,
    judgements: Judgements,
    unit: Unit,
    group: str = "",
) -> tuple[Agreement, Ceiling] | None:
    """The human ceiling of a protocol: human raters in the place of a metric.

    For unaggregated ratings, each rating is compared with the mean of the item's other ratings. For votes on pairs,
    each voter is compared with the majority of the pair's other voters. Aggregated ratings have no ceiling, since the
    aggregate includes the rater.

    Returns the raters as the metric :data:`HUMAN_CEILING`, and the ceiling without an interval; None if unknown.
    """
    spec = protocol.statistic
    images = np.array([photograph(item.image) for item in judgements.items])
    if spec.kind == "correlation" and spec.level == "captions" and spec.aggregation == "unaggregated":
        ratings = judgements.ratings[spec.human]
        chosen = np.full(len(ratings), True) if not group else item_column(judgements, ratings.item, "group") == group
        item, value = ratings.item[chosen], ratings.value[chosen]
        if not len(item) or int(np.bincount(item).max()) < 2:
            return None
        raters = leave_one_rater_out(item, value)
        _require_images(images[raters.item], "captions with two ratings or more")
        units = unit_labels(images, raters.item, unit)
        others = {HUMAN_CEILING: raters.others[None]}
        data: Agreement = Correlations.of(spec.coefficient, others, raters.rating, unit=units)
        ceiling = _ceiling(data, protocol, group, len(raters.rating), "leave-one-rater-out")
        if spec.coefficient in ("tau-b", "tau-c"):
            pairwise = pairwise_tau_b(item, value, ratings.rater[chosen])
            if pairwise is not None:
                ceiling = ceiling.model_copy(update={"pairwise_tau_b": pairwise[0], "raters": pairwise[1]})
        return data, ceiling
    if spec.kind != "accuracy" or spec.ties is None or spec.length_balanced:
        return None
    preferences = judgements.preferences[spec.human]
    if preferences.votes.shape[1:] != (2,):
        return None
    groups = np.array(preferences.group)
    # Pairs with even votes have no right answer, neither for raters nor for metrics.
    counted = groups == group if group else in_decided_groups(preferences)
    kept = counted & (preferences.preferred != 0) & (preferences.votes.sum(axis=1) > 1)
    if not kept.any() or set(groups[kept]) != set(groups[counted]):
        return None
    _require_images(images[preferences.first[kept]], "pairs with two votes or more")
    pair_images = images[preferences.first[kept]]
    labels, codes = np.unique(pair_images if unit == "image" else np.arange(len(pair_images)), return_inverse=True)
    credits = {HUMAN_CEILING: vote_credit(preferences.votes[kept])[None]}
    group_codes, _ = unit_codes(groups[kept])
    data = Accuracies(spec.ties, credits, group_codes, codes.astype(np.int64), len(labels), labels)
    return data, _ceiling(data, protocol, group, int(kept.sum()), "votes")


def _require_images(images: NDArray[Any], what: str) -> None:
    _, count = unit_codes(images)
    if count < FEWEST_IN_CEILING:
        message = f"it would be based on {number_of(count, 'image')} with {what}; the minimum is {FEWEST_IN_CEILING}"
        raise StatisticError(message, code="too-few", value=count)


def _ceiling(data: Agreement, protocol: Protocol, group: str, n: int, method: Any) -> Ceiling:
    value = observed_value(data.statistic(HUMAN_CEILING))
    return Ceiling(protocol=str(protocol), group=group, value=value, n=n, method=method)
