"""Scores paired with ratings: means by rating, percentiles, score groups, and examples (TIGEr, Table 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from capbench.core.errors import ProtocolError, StatisticError, UsageError
from capbench.core.records import FloatArray, IntArray, Item
from capbench.core.typed_json import Strict
from capbench.datasets.protocol import Aggregation, Protocol
from capbench.stats.pairwise_accuracy import aggregate
from capbench.stats.ties import merged
from capbench.studies.item_scores import ItemScores
from capbench.studies.score_files import Incomplete
from capbench.studies.scoring import ProgressFactory, Scorable, no_progress

MAX_LEVELS = 15  # distinct ratings of an n-point scale; more are binned
RATING_BINS = 10  # of equal width, from the lowest rating to the highest, that replace an n-point scale


@dataclass(frozen=True, eq=False)
class RatedScores:
    """Scores at the n data points of a protocol."""

    protocol: str
    dataset_title: str
    items: tuple[Item, ...]
    item: IntArray  # (n,) index of each data point's item
    human: FloatArray  # (n,) ratings, at most MAX_LEVELS distinct values: more are binned
    scores: Mapping[str, FloatArray]  # (n,) by title of the metric column
    aggregation: Aggregation  # of several ratings of one item
    draws: int  # of references of the protocol; scores are those of the first
    signatures: Mapping[str, str]
    sample: bool = False
    notes: tuple[str, ...] = ()
    version: str = ""
    incomplete: Mapping[str, Incomplete] = field(default_factory=dict)  # columns that were left out, by title

    @property
    def levels(self) -> FloatArray:
        """The distinct ratings, ascending."""
        return np.unique(self.human)


def rated_scores(
    scorable: Scorable,
    protocol: Protocol,
    aggregation: Aggregation | None = None,
    *,
    sample: bool = False,
    progress: ProgressFactory = no_progress,
) -> RatedScores:
    """Score judged items, and aggregate their ratings as the protocol does unless ``aggregation`` says otherwise."""
    spec = protocol.statistic
    if spec.side != "ratings":
        hint = "Choose a data set with ratings, such as composite"
        raise ProtocolError(f"{protocol} has no ratings", code="unsupported", value=str(protocol), hint=hint)
    scorable = replace(scorable.require_all(), draws=scorable.draws[:1])
    (judgements,) = scorable.draws
    ratings = judgements.ratings[spec.human]
    aggregation = aggregation or spec.aggregation
    item, human = aggregate(ratings.item, ratings.value, aggregation)
    notes, levels = judgements.notes, np.unique(human)
    if len(levels) > MAX_LEVELS:
        human = binned(human)
        notes = (
            *notes,
            f"{len(levels):,} distinct ratings are put into {RATING_BINS} bins of equal width from {levels[0]:g} to "
            f"{levels[-1]:g}; each bin is named after its middle",
        )
    scored = scorable.score(progress)
    (table,) = scored.tables
    rows = [row for request in scorable.requests for row in request.rows]
    return RatedScores(
        str(protocol),
        scorable.dataset.title,
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
        scored.incomplete,
    )


def binned(human: FloatArray) -> FloatArray:
    """(n,) the middle of each rating's bin, of :data:`RATING_BINS` of equal width; a border is of the upper one."""
    low, high = float(human.min()), float(human.max())
    edges = np.linspace(low, high, RATING_BINS + 1)
    middles: FloatArray = (edges[:-1] + edges[1:]) / 2
    return middles[np.searchsorted(edges[1:-1], human, side="right")]


@dataclass(frozen=True)
class RatingGroup:
    """The n data points of one rating: mean and sample standard deviation of their scores (None for one point)."""

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


def score_groups(scores: FloatArray, human: FloatArray) -> FloatArray:
    """(n,) scores on the human scale (TIGEr, appendix A.1): the rating that each data point is mapped to.

    If a share p of the ratings is 1, the lowest share p of the scores is 1, and so on. Points with equal scores have
    their mean rank and so belong to the same group.
    """
    from scipy.stats import rankdata

    levels, counts = np.unique(human, return_counts=True)
    place = rankdata(merged(scores)) - 0.5
    groups: FloatArray = levels[np.searchsorted(np.cumsum(counts), place, side="right")]
    return groups


@dataclass(frozen=True)
class GroupDifferences:
    """Differences between score groups and human ratings (TIGEr, Figure 8)."""

    differences: tuple[float, ...]  # (d,) all possible ones, score group minus rating, ascending
    shares: Mapping[str, tuple[float, ...]]  # (d,) of the data points at each difference, by title
    chance: tuple[float, ...]  # (d,) the same for a metric without ties that is independent of the ratings
    n: int

    def equal(self, title: str) -> float:
        """Share of the data points whose score group equals the rating."""
        return self.shares[title][self.differences.index(0.0)]

    def mean_distance(self, title: str) -> float:
        """Mean absolute difference, in points of the scale."""
        return float(np.dot(np.abs(self.differences), self.shares[title]))


def group_differences(rated: RatedScores) -> GroupDifferences:
    """Differences between score groups and ratings of all metrics."""
    levels, codes, counts = np.unique(rated.human, return_inverse=True, return_counts=True)
    sizes = np.maximum(np.abs(levels[:, None]), np.abs(levels[None, :]))
    grid = merged((levels[:, None] - levels[None, :]).ravel(), sizes.ravel()).reshape(sizes.shape)
    differences = np.unique(grid)
    chances = np.outer(counts, counts) / counts.sum() ** 2
    shares = {}
    for title, scores in rated.scores.items():
        distances = grid[np.searchsorted(levels, score_groups(scores, rated.human)), codes]
        shares[title] = tuple(float(np.mean(distances == difference)) for difference in differences)
    return GroupDifferences(
        tuple(differences.tolist()),
        shares,
        tuple(float(chances[grid == difference].sum()) for difference in differences),
        len(rated.human),
    )


Kind = Literal["metric-higher", "human-higher", "equal"]
KINDS: tuple[Kind, ...] = ("metric-higher", "human-higher", "equal")


class Example(Strict):
    """One candidate with its human rating and the metric's score."""

    kind: Kind  # the metric's score group compared with the rating
    image: str
    candidate: str
    references: tuple[str, ...]
    human: float
    group: float  # the score on the human scale
    score: float


class Examples(Strict):
    """An equal number of examples of each kind, in the order of :data:`KINDS`."""

    protocol: str
    dataset_title: str
    metric: str
    signature: str
    aggregation: str
    n: int  # data points behind the scale
    counts: dict[str, int]  # data points by kind
    seed: int
    sample: bool
    examples: tuple[Example, ...]
    version: str = ""


def choose_examples(rated: RatedScores, *, number: int = 2, seed: int = 0) -> Examples:
    """Choose ``number`` examples of each kind from the scores of one metric column: the greatest disagreements, and
    random agreements. An image is reused only if no other image remains.
    """
    if len(rated.scores) != 1:
        message = f"examples require exactly one metric, not {len(rated.scores)}: {', '.join(rated.scores)}"
        hint = "Name one column with --metric, such as bleu-4 instead of bleu"
        raise UsageError(message, code="wrong-value", value=len(rated.scores), hint=hint)
    ((title, scores),) = rated.scores.items()
    groups = score_groups(scores, rated.human)
    difference = groups - rated.human
    members = dict(zip(KINDS, map(np.flatnonzero, (difference > 0, difference < 0, difference == 0)), strict=True))
    chosen = []
    for kind, points in members.items():
        if len(points) < number:
            message = f"{title} has {len(points)} data points of the kind '{kind}', fewer than the requested {number}"
            raise StatisticError(message, code="too-few", value=len(points), hint="Request fewer examples")
        shuffled = np.random.default_rng(seed).permutation(points)
        order = shuffled[np.argsort(-np.abs(difference)[shuffled], kind="stable")].tolist()
        items = {point: rated.items[rated.item[point]] for point in order}
        first = {item.image: point for point, item in reversed(items.items())}  # the first point of each image
        order.sort(key=lambda point: first[items[point].image] != point)
        for point in order[:number]:
            of_point = {name: getattr(items[point], name) for name in ("image", "candidate", "references")}
            numbers = {"human": rated.human, "group": groups, "score": scores}
            of_point |= {name: float(values[point]) for name, values in numbers.items()}
            chosen.append(Example(kind=kind, **of_point))
    return Examples(
        protocol=rated.protocol,
        dataset_title=rated.dataset_title,
        metric=title,
        signature=next(iter(rated.signatures.values())),
        aggregation=rated.aggregation,
        n=len(groups),
        counts={kind: len(points) for kind, points in members.items()},
        seed=seed,
        sample=rated.sample,
        examples=tuple(chosen),
        version=rated.version,
    )


def percentiles(values: FloatArray) -> FloatArray:
    """(n,) percentiles in (0, 100): the share of smaller values, plus half the share of equal values.

    >>> percentiles(np.array([3.0, 1.0, 2.0, 2.0])).tolist()
    [87.5, 12.5, 50.0, 50.0]
    """
    from scipy.stats import rankdata

    return np.asarray(100 * (rankdata(merged(values)) - 0.5) / max(len(values), 1), dtype=np.float64)


def human_percentiles(table: ItemScores) -> FloatArray:
    """(n,) percentiles of the human ratings. For pairs it is 100: the preferred order is the maximum."""
    return np.full(len(table), 100.0) if table.kind == "preferences" else percentiles(np.array(table.human))


def disagreement(table: ItemScores) -> FloatArray:
    """(n,) largest distance between the human percentile and a metric's, over all metrics of a table."""
    human, greatest = human_percentiles(table), np.zeros(len(table))
    for name in table.scores:
        places, scores = table.points(name)
        greatest[places] = np.maximum(greatest[places], np.abs(percentiles(scores) - human[places]))
    return greatest
