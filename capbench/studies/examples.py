"""Scores paired with ratings: means by rating, score groups, and examples of (dis)agreement (TIGEr, Table 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, IntArray, Item
from capbench.datasets.base import Dataset
from capbench.datasets.protocol import Aggregation, Protocol
from capbench.metrics.metric_request import MetricRequest
from capbench.metrics.needs import Resources
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.ties import merged
from capbench.stats.vectors import finite_vector
from capbench.studies.judged import Incomplete, ProgressFactory, judge, no_progress

# TIGEr (Jiang et al. 2019): mean score by rating is its Figure 4; scores mapped onto the n-point human scale are its
# appendix A.1, their differences from ratings its Figure 8, and examples of them its Table 3.

MAX_LEVELS = 15
"""Maximum number of distinct ratings of an n-point scale; more are binned."""
RATING_BINS = 10
"""Number of bins of equal width, from the lowest rating to the highest, that replace an n-point scale."""


@dataclass(frozen=True, eq=False)
class RatedScores:
    """Scores at the data points of a protocol.

    Attributes:
        protocol: its id.
        dataset_title: the data set's name in tables.
        items: the scored items.
        item: (n,) index of each data point's item.
        human: (n,) ratings, at most :data:`MAX_LEVELS` distinct values: more are binned (:func:`binned`).
        scores: (n,) by title of the metric column.
        aggregation: aggregation of several ratings of one item.
        draws: draws of references of the protocol; scores are those of the first.
        signatures: one line by label.
        sample: True if the data is the embedded sample.
        notes: notes on the data set's items, one line each.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
        incomplete: columns of incomplete score files, by title; they were left out.
    """

    protocol: str
    dataset_title: str
    items: tuple[Item, ...]
    item: IntArray
    human: FloatArray
    scores: Mapping[str, FloatArray]
    aggregation: Aggregation
    draws: int
    signatures: Mapping[str, str]
    sample: bool = False
    notes: tuple[str, ...] = ()
    version: str = ""
    incomplete: Mapping[str, Incomplete] = field(default_factory=dict)

    @property
    def levels(self) -> FloatArray:
        """The distinct ratings, ascending."""
        return np.unique(self.human)


def rated_scores(
    dataset: Dataset,
    protocol: Protocol,
    requests: Sequence[MetricRequest],
    *,
    aggregation: Aggregation | None = None,
    resources: Resources | None = None,
    cache: bool = True,
    sample: bool = False,
    progress: ProgressFactory = no_progress,
) -> RatedScores:
    """Score a data set with ratings.

    Args:
        dataset: the data set.
        protocol: one of its protocols, with a correlation as its statistic; of several draws the first is used.
        requests: metrics and their columns.
        aggregation: aggregation of several ratings of one item; default: the protocol's.
        resources: features, weights and images for the metrics.
        cache: True to use the score cache.
        sample: True if the data is the embedded sample; recorded only.
        progress: makes progress bars.

    Raises:
        ProtocolError: the protocol has no ratings.
        DataError, MetricError, …: loading or scoring failed.
    """
    spec = protocol.statistic
    if spec.side != "ratings":
        raise ProtocolError(
            f"{protocol} has no ratings",
            code="unsupported",
            value=str(protocol),
            hint="Choose a data set with ratings, such as composite",
        )
    judged = judge(dataset, protocol.items, requests, resources, cache=cache).require_all()
    judged = replace(judged, draws=judged.draws[:1])
    judgements = judged.draws[0]
    ratings = judgements.ratings[spec.human]
    aggregation = aggregation or spec.aggregation
    item, human = aggregate(ratings.item, ratings.value, aggregation)
    notes = judgements.notes
    levels = np.unique(human)
    if len(levels) > MAX_LEVELS:
        human = binned(human)
        notes = (
            *notes,
            f"{len(levels):,} distinct ratings are put into {RATING_BINS} bins of equal width from {levels[0]:g} to "
            f"{levels[-1]:g}; each bin is named after its middle",
        )
    scored = judged.score(progress).require_all()
    (table,) = scored.tables
    rows = [row for request in requests for row in request.rows]
    return RatedScores(
        str(protocol),
        dataset.title,
        judgements.items,
        item,
        human,
        {row.title: table.values[row.key][item] for row in scored.complete(rows)},
        aggregation,
        protocol.items.draws,
        table.signatures,
        sample,
        notes,
        protocol.version,
        scored.incomplete(rows),
    )


def binned(human: FloatArray) -> FloatArray:
    """Ratings in :data:`RATING_BINS` bins of equal width, from the lowest to the highest rating.

    A rating on the border of two bins belongs to the upper one; the highest rating belongs to the last bin.

    Args:
        human: (n,) ratings with at least two distinct values.

    Returns:
        (n,) the middle of each rating's bin.
    """
    low, high = float(human.min()), float(human.max())
    edges = np.linspace(low, high, RATING_BINS + 1)
    middles: FloatArray = (edges[:-1] + edges[1:]) / 2
    return middles[np.searchsorted(edges[1:-1], human, side="right")]


@dataclass(frozen=True)
class RatingGroup:
    """The data points of one rating.

    Attributes:
        rating: the rating.
        n: number of data points.
        mean: their mean score.
        sd: sample standard deviation of their scores; None for a single data point.
    """

    rating: float
    n: int
    mean: float
    sd: float | None


def by_rating(scores: FloatArray, human: FloatArray) -> tuple[RatingGroup, ...]:
    """Mean score of the data points of each rating, by ascending rating (TIGEr, Figure 4)."""
    groups = []
    for rating in np.unique(human):
        chosen = scores[human == rating]
        sd = float(chosen.std(ddof=1)) if len(chosen) > 1 else None
        groups.append(RatingGroup(float(rating), len(chosen), float(chosen.mean()), sd))
    return tuple(groups)


def score_groups(
    scores: Sequence[float] | FloatArray, human: Sequence[float] | FloatArray, *, name: str = "the scores"
) -> FloatArray:
    """Scores on the human scale (TIGEr, appendix A.1).

    Data points are sorted by score and divided in the proportions of the human ratings: if a share p of the ratings is
    1, the lowest share p of the scores is 1, and so on. Points with equal scores have their mean rank and so belong to
    the same group; a metric with many ties therefore need not fill all groups.

    Args:
        scores: (n,) scores.
        human: (n,) ratings of the same data points.
        name: name of the scores in error messages.

    Returns:
        (n,) the value of ``human`` that each point is mapped to.

    Raises:
        StatisticError: no data points, unequal lengths, or a value that is NaN or infinite.
    """
    from scipy.stats import rankdata

    values, ratings = finite_vector(scores, name), finite_vector(human, "the human ratings")
    if len(values) != len(ratings):
        raise StatisticError(
            f"{name} has {len(values)} values for {len(ratings)} ratings", code="mismatch", value=len(values)
        )
    if not len(values):
        raise StatisticError(f"{name}: there are no data points to map onto the human scale", code="too-few")
    levels, counts = np.unique(ratings, return_counts=True)
    place = rankdata(merged(values)) - 0.5
    groups: FloatArray = levels[np.searchsorted(np.cumsum(counts), place, side="right")]
    return groups


@dataclass(frozen=True)
class GroupDifferences:
    """Differences between score groups and human ratings (TIGEr, Figure 8).

    Attributes:
        differences: (d,) all possible differences, score group minus rating, ascending.
        shares: (d,) share of the data points at each difference, by title.
        chance: (d,) the same for a metric without ties that is independent of the ratings.
        n: number of data points.
    """

    differences: tuple[float, ...]
    shares: Mapping[str, tuple[float, ...]]
    chance: tuple[float, ...]
    n: int

    def equal(self, title: str) -> float:
        """Share of the data points whose score group equals the rating."""
        return self.shares[title][self.differences.index(0.0)]

    def mean_distance(self, title: str) -> float:
        """Mean absolute difference, in points of the scale."""
        return float(np.dot(np.abs(self.differences), self.shares[title]))


def group_differences(rated: RatedScores) -> GroupDifferences:
    """Differences between score groups and ratings of all metrics. Raises as :func:`score_groups`."""
    levels, codes, counts = np.unique(rated.human, return_inverse=True, return_counts=True)
    sizes = np.maximum(np.abs(levels[:, None]), np.abs(levels[None, :]))
    grid = merged((levels[:, None] - levels[None, :]).ravel(), sizes.ravel()).reshape(sizes.shape)
    differences = np.unique(grid)
    chances = np.outer(counts, counts) / counts.sum() ** 2
    shares = {}
    for title, scores in rated.scores.items():
        distances = grid[np.searchsorted(levels, score_groups(scores, rated.human, name=title)), codes]
        shares[title] = tuple(float(np.mean(distances == difference)) for difference in differences)
    return GroupDifferences(
        tuple(differences.tolist()),
        shares,
        tuple(float(chances[grid == difference].sum()) for difference in differences),
        len(rated.human),
    )


Kind = Literal["metric-higher", "human-higher", "equal"]
KINDS: tuple[Kind, ...] = ("metric-higher", "human-higher", "equal")


@dataclass(frozen=True)
class Example:
    """One candidate with its human rating and the metric's score.

    Attributes:
        kind: above, below or equal: the metric's score group compared with the rating.
        image: image id.
        candidate: the caption.
        references: the references that it was scored against.
        human: its human rating.
        group: the metric's score on the human scale.
        score: its score.
    """

    kind: Kind
    image: str
    candidate: str
    references: tuple[str, ...]
    human: float
    group: float
    score: float


@dataclass(frozen=True)
class Examples:
    """An equal number of examples of each kind.

    Attributes:
        protocol: id of the protocol with the items.
        dataset_title: the data set's name in tables.
        metric: title of the metric column.
        signature: of the metric.
        aggregation: aggregation of several ratings of one item.
        n: number of data points behind the scale.
        counts: data points by kind.
        seed: seed of the choice.
        sample: whether the data is the embedded sample.
        examples: by kind in the order of :data:`KINDS`.
        version: version of the data set, which ``protocol`` leaves out; ``""`` if it has none.
    """

    protocol: str
    dataset_title: str
    metric: str
    signature: str
    aggregation: str
    n: int
    counts: dict[str, int]
    seed: int
    sample: bool
    examples: tuple[Example, ...]
    version: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def choose_examples(rated: RatedScores, *, number: int = 2, seed: int = 0) -> Examples:
    """Choose examples of each kind.

    Of the disagreements, those with the greatest difference come first, and ties are broken at random. Of the
    agreements, a random sample is chosen. An image is reused only if no other image remains.

    Args:
        rated: the scores of one metric column.
        number: examples of each kind.
        seed: seed of the choice.

    Raises:
        UsageError: more than one metric, or a number below 1.
        StatisticError: there are fewer examples of a kind than requested.
    """
    if len(rated.scores) != 1:
        raise UsageError(
            f"examples require exactly one metric, not {len(rated.scores)}: {', '.join(rated.scores)}",
            code="wrong-value",
            value=len(rated.scores),
            hint="Name one column with --metric, such as bleu-4 instead of bleu",
        )
    if number < 1:
        raise UsageError(
            f"the number of examples is {number}", code="out-of-range", value=number, hint="Set it to 1 or more"
        )
    ((title, scores),) = rated.scores.items()
    groups = score_groups(scores, rated.human, name=title)
    difference = groups - rated.human
    members = {
        "metric-higher": np.flatnonzero(difference > 0),
        "human-higher": np.flatnonzero(difference < 0),
        "equal": np.flatnonzero(difference == 0),
    }
    chosen = []
    for kind in KINDS:
        if len(members[kind]) < number:
            raise StatisticError(
                f"{title} has {len(members[kind])} data points of the kind '{kind}', fewer than the requested {number}",
                code="too-few",
                value=len(members[kind]),
                hint="Request fewer examples",
            )
        for point in _choose(rated, members[kind], np.abs(difference), number, seed):
            item = rated.items[rated.item[point]]
            chosen.append(
                Example(
                    kind,
                    item.image,
                    item.candidate,
                    item.references,
                    float(rated.human[point]),
                    float(groups[point]),
                    float(scores[point]),
                )
            )
    return Examples(
        rated.protocol,
        rated.dataset_title,
        title,
        next(iter(rated.signatures.values())),
        rated.aggregation,
        len(groups),
        {kind: len(points) for kind, points in members.items()},
        seed,
        rated.sample,
        tuple(chosen),
        rated.version,
    )


def _choose(rated: RatedScores, points: IntArray, distance: FloatArray, number: int, seed: int) -> Sequence[int]:
    shuffled = np.random.default_rng(seed).permutation(points)
    order: list[int] = shuffled[np.argsort(-distance[shuffled], kind="stable")].tolist()
    points_of_new_images: list[int] = []
    seen: set[str] = set()
    for point in order:
        image = rated.items[rated.item[point]].image
        if image not in seen:
            seen.add(image)
            points_of_new_images.append(point)
    again = [point for point in order if point not in set(points_of_new_images)]
    return [*points_of_new_images, *again][:number]
