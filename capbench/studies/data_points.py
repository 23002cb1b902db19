"""The data points of a protocol: several metrics' scores paired with the human side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capbench.core.errors import StatisticError
from capbench.core.records import FloatArray, IntArray, Item, Judgements, Preferences, photograph
from capbench.datasets.protocol import Protocol, StatisticSpec
from capbench.stats.agreement import Accuracies, Agreement, Correlations
from capbench.stats.graded_preferences import GradedPairs, length_sides
from capbench.stats.pairs import Unit
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.resampling import observed_value, unit_codes
from capbench.stats.system_agreement import Systems
from capbench.stats.within_images import WithinImages
from capbench.stats.within_sources import WithinSources


def agreement(
    protocol: Protocol,
    judgements: Judgements,  # of any draw: the human side is the same for all
    scores: Mapping[str, FloatArray],  # (draws, items) scores by metric
    unit: Unit,  # to resample; for preferences, item and rating are both the single pair
    group: str = "",  # only the data points of this group
    *,
    rating_levels: bool = False,  # m of tau-c is the number of distinct ratings, even of scores with fewer
) -> Agreement:
    """Several metrics' scores at the data points of a protocol."""
    spec = protocol.statistic
    if spec.level != "captions":
        if unit != "image":
            message = f"{spec.name} compares captions of an image, so images are resampled, not single {unit}s"
            raise StatisticError(message, code="conflict", value=unit, hint="Use the unit 'image'")
        return level_points(spec, judgements, scores, group)
    images = np.array([photograph(item.image) for item in judgements.items])
    if spec.coefficient is not None:
        item, human = rated_points(spec, judgements, group)
        at_points = {title: values[:, item] for title, values in scores.items()}
        labels = unit_labels(images, item, unit)
        return Correlations.of(spec.coefficient, at_points, human, unit=labels, rating_levels=rating_levels)
    assert spec.ties is not None  # a plain mean has no human judgements
    preferences = judgements.preferences[spec.human]
    groups = np.array(preferences.group)
    counted = groups == group if group else in_decided_groups(preferences)
    sides = balanced_sides(spec, judgements)
    if sides is not None:
        # Both sides of a group have the same weight, as groups have.
        counted = counted & (sides != 0)
        groups = np.array([f"{name}|{side}" for name, side in zip(groups.tolist(), sides.tolist(), strict=True)])
    chosen = np.flatnonzero(counted)
    first, second = preferences.first[chosen], preferences.second[chosen]
    return Accuracies.of(
        spec.ties,
        {title: values[:, first] for title, values in scores.items()},
        {title: values[:, second] for title, values in scores.items()},
        preferences.preferred[chosen],
        groups[chosen].tolist(),
        unit=images[first] if unit == "image" else None,
    )


def level_points(
    spec: StatisticSpec, judgements: Judgements, scores: Mapping[str, FloatArray], group: str = ""
) -> WithinImages | WithinSources | Systems | GradedPairs:
    """Several metrics' (items,) or (draws, items) scores at the data points of a statistic not over all captions."""
    if spec.level == "pairs":
        pairs = judgements.preferences[spec.human]
        if pairs.grade is None:
            raise StatisticError("the preferences have no grades", code="unsupported")
        chosen = np.array([not group or of_pair == group for of_pair in pairs.group], dtype=np.bool_)
        first, second = pairs.first[chosen], pairs.second[chosen]
        return GradedPairs.of_pairs(
            spec.coefficient,
            {title: np.asarray(values)[..., first] for title, values in scores.items()},
            {title: np.asarray(values)[..., second] for title, values in scores.items()},
            pairs.grade[chosen],
            [photograph(judgements.items[place].image) for place in first.tolist()],
        )
    item, human = rated_points(spec, judgements, group)
    at_points = {title: np.asarray(values)[..., item] for title, values in scores.items()}
    images = item_column(judgements, item, "image")
    photographs = [photograph(image) for image in images.tolist()]
    if spec.level == "images":
        # Captions are compared under the id that they were rated under; ids of one photograph are resampled together.
        return WithinImages.of(spec.coefficient, at_points, human, images, drawn=photographs)
    systems = item_column(judgements, item, "system")
    if spec.level == "sources":
        return WithinSources.of(spec.coefficient, at_points, human, systems, photographs)
    return Systems.of(spec.coefficient, at_points, human, systems, photographs)


def defined_value(data: Agreement, name: str) -> float:
    """The statistic of one metric on all data points. Raises StatisticError if it is undefined."""
    value = observed_value(data.statistic(name))
    if not np.isfinite(value):
        raise StatisticError(f"{data.label} is undefined: {name} does not distinguish what it compares", value=name)
    return value


def photograph_codes(items: Sequence[Item]) -> tuple[IntArray, int]:
    """(items,) number of each item's photograph (one may have two image ids), and the number of photographs."""
    return unit_codes([photograph(item.image) for item in items])


def rated_points(spec: StatisticSpec, judgements: Judgements, group: str) -> tuple[IntArray, FloatArray]:
    """(n,) items and (n,) human values of the data points of a statistic on ratings, of a group or all."""
    ratings = judgements.ratings[spec.human]
    item, human = aggregate(ratings.item, ratings.value, spec.aggregation)
    if not group:
        return item, human
    chosen = item_column(judgements, item, "group") == group
    return item[chosen], human[chosen]


def item_column(judgements: Judgements, item: IntArray, name: str) -> NDArray[np.str_]:
    """(n,) a field of the data points' items."""
    return np.array([getattr(entry, name) for entry in judgements.items], dtype=np.str_)[item]


def unit_labels(images: NDArray[Any], item: IntArray, unit: Unit) -> NDArray[Any] | None:
    """(n,) the unit of resampling of each data point; None if each is a separate unit."""
    return {"image": images[item], "item": item, "rating": None}[unit]


def in_decided_groups(preferences: Preferences) -> NDArray[np.bool_]:
    """(n,) True for pairs of groups that have an accuracy: the votes are not even on all of the group's pairs."""
    groups = np.array(preferences.group, dtype=object)
    return np.isin(groups, list(set(groups[np.asarray(preferences.preferred) != 0].tolist())))


def balanced_sides(spec: StatisticSpec, judgements: Judgements) -> IntArray | None:
    """(n,) side of each pair in a length-balanced accuracy; None for other statistics."""
    if not spec.length_balanced:
        return None
    pairs = judgements.preferences[spec.human]
    words = np.array([len(item.candidate.split()) for item in judgements.items], dtype=np.float64)
    return length_sides(pairs.preferred, words[pairs.first] - words[pairs.second], pairs.group)
